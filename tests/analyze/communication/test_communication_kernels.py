"""Kernels by the names that profilers record, with what each communicates."""

import pytest

from torchgauge.analyze.communication.communication_kernels import collective_name, collective_of

KERNELS = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "allreduce",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": "sendrecv",
    "rcclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "unknown",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)": "allreduce",
    "_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEv": "allreduce",
    "void deep_ep::intranode::dispatch<8, 768, 4096>(int4*, float*)": "dispatch",
    "void deep_ep::internode_ll::combine<true, 7168>(void*)": "combine",
    "(anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*)": "allreduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16>()": "allreduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()":
        "allreduce",
    "nvshmemi_kernel_barrier(int)": "unknown",
    "hcom_allReduce__503_0_1": "allreduce",
    "hcom_reduceScatter_": "reducescatter",
    "void mscclpp::collective::allgather(mscclpp::DeviceHandle)": "allgather",
}  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_collective_of_a_library_s_kernel(kernel):
    assert collective_name(None, kernel) == KERNELS[kernel]


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void moe::dev::routing::routingDispatch(int)",
        "triton_red_fused_all_reduce_sum_0",
        "Memcpy PtoP (Device -> Device)",
        "void cub::DeviceReduceKernel<float>(float*)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
    ],
)
def test_computation_is_no_communication(kernel):
    assert collective_of(kernel) is None


def test_what_was_recorded_beside_the_kernel_counts_first():
    assert collective_name("nccl:_all_gather_base", "ncclDevKernel_Generic") == "allgather"
