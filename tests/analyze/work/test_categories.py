"""Names that recordings have, with the category that an engineer would say."""

import gzip
import json
import random

import pytest
from tests.support.paths import public_traces

from torchgauge.analyze.work.categories import CATEGORIES, category

KERNELS = {
    "Memcpy HtoD (Pinned -> Device)": "copy",
    "Memset (Device)": "fill",
    "volta_sgemm_128x64_nn": "matrix product",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn": "matrix product",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_TNT": "matrix product",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_execute_kernel__5x_cublas":
        "matrix product",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>"
    "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)":
        "matrix product",
    "void splitKreduce_kernel<float, float, float, float, true>(cublasSplitKParams<float>)":
        "matrix product",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, 7>()":
        "matrix product",
    "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0": "matrix product",
    "fused_moe_kernel": "matrix product",
    "void marlin::Marlin<__half, 256, 1, 8, 8, 4>(int4 const*)": "matrix product",
    "triton_tem_fused_addmm_relu_2": "matrix product",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32":
        "convolution",
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_11": "convolution",
    "cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": "convolution",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32": "convolution",
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl":
        "convolution",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(float const*)": "layout",
    "batched_transpose_32x32_half": "layout",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>()":
        "layout",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>()":
        "attention",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Params)": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7x_128x128x128":
        "attention",
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1>>()":
        "attention",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<>>>()":
        "attention",
    "attn_fwd": "attention",
    "triton_tem_fused_flex_attention_0": "attention",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)":
        "normalisation",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128>(cudnnTensorStruct)":
        "normalisation",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long)":
        "normalisation",
    "triton_per_fused_native_layer_norm_3": "normalisation",
    "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, float)": "normalisation",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*)":
        "softmax",
    "triton_red_fused__softmax_add_1": "softmax",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()":
        "elementwise",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::"
    "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>>()":
        "elementwise",
    "triton_poi_fused_native_layer_norm_relu_4": "elementwise",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)": "elementwise",
    "void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16*)": "elementwise",
    "loop_add_fusion": "elementwise",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>()": "copy",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>()": "fill",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<>>>()":
        "reduction",
    "triton_red_fused_sum_7": "reduction",
    "input_reduce_fusion": "reduction",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int>()":
        "embedding",
    "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<>()":
        "embedding",
    "void at::native::vectorized_gather_kernel<16, long>(char*)": "embedding",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::Metadata<4>>()":
        "optimizer",
    "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>>()":
        "sort",
    "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>"
    "(at::native::templates::cuda::normal_and_transform<float>)": "random",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, 1, 4>()":
        "random",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(int, float const*)":
        "pooling",
    "my_kernel": "other",
}  # fmt: skip

OPERATORS = {
    "aten::addmm": "matrix product",
    "aten::linear": "matrix product",
    "aten::mm.out": "matrix product",
    "aten::conv2d": "convolution",
    "aten::convolution_backward": "convolution",
    "aten::_scaled_dot_product_flash_attention": "attention",
    "aten::scaled_dot_product_attention": "attention",
    "aten::_softmax": "softmax",
    "aten::native_layer_norm": "normalisation",
    "aten::add_.Tensor": "elementwise",
    "aten::gelu": "elementwise",
    "aten::sum": "reduction",
    "aten::_foreach_add_": "optimizer",
    "aten::_fused_adamw_": "optimizer",
    "aten::embedding": "embedding",
    "aten::index_select": "embedding",
    "aten::_to_copy": "copy",
    "aten::to": "copy",
    "aten::copy_": "copy",
    "aten::cat": "layout",
    "aten::contiguous": "layout",
    "aten::zero_": "fill",
    "aten::view": "view",
    "aten::empty": "view",
    "aten::native_dropout": "random",
    "aten::max_pool2d_with_indices": "pooling",
    "aten::mse_loss": "loss",
    "c10d::allreduce_": "communication",
    "fbgemm::permute_sparse_features": "layout",
    "autograd::engine::evaluate_function: AddmmBackward0": "matrix product",
    "my::operator": "other",
    "## Call CompiledFxGraph fhvd3kufpkyl3rnnzlgqjmtg6p4cmsgru2conv5bqlst ##": "compiled graph",
}


@pytest.mark.parametrize("name", [*KERNELS, *OPERATORS])
def test_the_category_of_a_name(name):
    assert category(name) == (KERNELS | OPERATORS)[name]


@pytest.mark.parametrize("name", ["ranges of {}", "triton_{}", "{}.cpp"])
def test_no_word_is_read_in_a_hash(name):
    dice = random.Random(1)
    for _ in range(2_000):
        letters = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz234567", k=51))
        assert category(name.format("f" + letters)) == "other"


def test_every_category_has_a_name_that_is_tested():
    untested = set(CATEGORIES) - set(KERNELS.values()) - set(OPERATORS.values())
    assert untested == {"recurrent", "linear algebra"}


@pytest.mark.parametrize("path", public_traces(), ids=lambda path: path.name)
def test_nearly_all_device_time_of_real_recordings_has_a_category(path):
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    pieces = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy")]
    unnamed = sum(event["dur"] for event in pieces if category(event["name"]) == "other")
    assert unnamed < 0.01 * sum(event["dur"] for event in pieces)


@pytest.mark.parametrize("part", ["a", "pad_", "_loss", "quant", "mm_", "::", "<", "triton_poi_"])
def test_a_long_name_takes_little_work(part):
    """Work that grows with the square of the length would take minutes here."""
    names = [part * 50_000 + str(number) for number in range(50)]
    assert len({category(name) for name in names}) == 1
