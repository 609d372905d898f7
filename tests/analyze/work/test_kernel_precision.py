"""Types and Tensor Cores by the names of real kernels."""

import pytest

from torchgauge.analyze.work.category_times import on_tensor_cores, precision


@pytest.mark.parametrize(
    ("name", "of_type", "uses_them"),
    [
        ("volta_sgemm_128x32_nt", "fp32", False),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "fp32", False),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>", "fp32", False),
        ("volta_fp16_s884gemm_fp16_64x128_ldg8_f2f_nn", "fp16", True),
        ("volta_h884gemm_64x128_ldg8_nn", "fp16", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", "bf16", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>", "tf32", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4", "tf32", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3", "fp32", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "bf16", True),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128", "fp8", True),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "fp16", True),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopA_NNT", "bf16", True),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_AS_SAV_UserArgs_MT64x64x64_MI16x16x1", "bf16", True),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x128x32_MI32x32x8x1", "fp16", True),
        ("Cijk_Alik_Bljk_SB_MT128x64x16_SE_1LDSB0", "fp32", None),
        ("void pytorch_flash::flash_fwd_kernel<Traits<64, cutlass::bfloat16_t>>", "bf16", True),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(AttentionKernel)", "fp16", True),
        ("void gemv2T_kernel_val<int, int, float, float, float, 128>", "fp32", False),
        ("SubTensorOpWithCastTensor1d", None, None),
        ("triton_poi_fused_add_0", None, None),
    ],
)
def test_by_the_name(name, of_type, uses_them):
    assert (precision(name), on_tensor_cores(name)) == (of_type, uses_them)
