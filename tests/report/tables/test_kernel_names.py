"""Short names of kernels, from names that real recordings have."""

import pytest
from tests.support.paths import public_trace

from torchgauge.readers.kineto.kineto import read_events
from torchgauge.report.tables.kernel_names import kernel_label, kernel_labels

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, "
    "at::detail::Array<char*, 2> >(int, at::native::{}, at::detail::Array<char*, 2>)"
)
STRIDED = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
    "{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)::"
    "{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast)"
)
MUL = "AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
NAMES = {
    ELEMENTWISE.format(MUL, MUL): "Mul ×4 fp32",
    ELEMENTWISE.format("CUDAFunctor_add<c10::Half>", ""): "add ×4 fp16",
    ELEMENTWISE.format("(anonymous namespace)::where_kernel_impl(at::TensorIterator&)::"
    "{lambda()#1}::operator()() const::{lambda(bool, double, double)#1}", ""): "where ×4 bool",
    STRIDED: "direct_copy strided bf16",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, "
    "float, float, float>, unsigned int, float, 4> >(…)": "reduce MeanOps fp32",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>"
    "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)":
        "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_"
    "k_off_kernel__5x_cublas": "sm90_xmma_gemm_bf16_bf16f32_f32_tn_n 64×64×64",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, "
    "false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)":
        "flash_fwd_kernel bf16 64×128×128",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false>(float const*)":
        "nchwToNhwcKernel fp32",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)":
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "triton_poi_fused_add_native_layer_norm_0": "triton_poi_fused_add_native_layer_norm_0",
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_9GemmShapeILi64E"
    "Li128ELi32EEE": "ImplicitGemmConvolution 64×128×32",
    "Memcpy HtoD (Pageable -> Device)": "Memcpy HtoD (Pageable -> Device)",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize(("name", "label"), NAMES.items())
def test_a_label_says_operation_type_and_tile(name, label):
    assert kernel_label(name) == label


def test_names_that_would_be_alike_stay_apart():
    first = "void index_copy<long, 1>(long*)"
    second = "void index_copy<long, 2>(long*)"
    assert kernel_label(first) == kernel_label(second) == "index_copy int64"
    assert kernel_labels([first, second, "volta_sgemm_128x32_nn"]) == [
        first, second, "volta_sgemm_128x32_nn",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "recording", ["h100_bert_small", "h100_qwen_0.5b", "a100_nccl_rank0of2", "diff_after_v100"]
)
def test_labels_of_a_recording_are_short_and_few_are_alike(recording):
    events = read_events(public_trace(recording))
    kernels = events.category.where(lambda category: category == "kernel")
    chosen = events.name.take(kernels.nonzero()[0])
    names = {chosen.values[code] for code in chosen.codes.tolist()}
    labels = {kernel_label(name) for name in names}
    assert max(map(len, labels)) <= 90
    assert len(labels) >= 0.75 * len(names)


@pytest.mark.parametrize(
    "name", ["void <", "void a<b", "a>b<", "_ZN", "_ZN99999a", "((((", "<" * 9_000]
)
def test_names_that_are_none_stay_readable(name):
    assert isinstance(kernel_label(name), str)
    assert len(kernel_label(name)) <= len(name)
