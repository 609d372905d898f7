"""The kind of each aten operator by its name, for use without torch.

Names are those of all tested versions of torch, by its own tags, schemas and kernels; tests compare
them with the installed one.
Operators with a formula and those in `free` are found there.
"""

from __future__ import annotations

from typing import Literal

from torchgauge.formulas.free import FREE, aten
from torchgauge.formulas.registry import find

Kind = Literal["formula", "pointwise", "reduction", "free", "lists", "composite", "unknown"]


# One operation per output element, by torch's tag.
POINTWISE = aten(
    """
    __ilshift__ __lshift__ __rshift__ _conj_physical abs acos acosh add addcdiv addcmul
    angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min conj_physical
    copysign cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2 expm1 floor fmax
    fmin fmod frac frexp gcd ge gelu gt hardshrink hardsigmoid hardtanh heaviside hypot i0
    igamma igammac isinf isnan isneginf isposinf lcm ldexp le leaky_relu lerp lgamma log
    log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    logit logit_backward lt maximum minimum mish mul mvlgamma nan_to_num ne neg nextafter
    polygamma pow rad2deg reciprocal relu remainder round rsqrt rsub sgn sigmoid
    sigmoid_backward sign signbit silu sin sinc sinh softplus softshrink special_airy_ai
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u
    special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_entr special_erfcx
    special_hermite_polynomial_h special_hermite_polynomial_he special_i0e special_i1
    special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py
    special_zeta sqrt sub tan tanh tanh_backward threshold trunc xlogy
    """
)

# One per input element, by torch's tag.
REDUCTION = aten(
    """
    all amax amin any argmax argmin count_nonzero linalg__powsum linalg_vector_norm max mean
    min nansum norm prod std sum var
    """
)

# Views by their schema; the copies of all these are named after them.
MOVING = FREE | aten(
    """
    _fw_primal _make_dual _nested_get_values _nested_view_from_buffer _nested_view_from_jagged
    _sparse_broadcast_to slice_inverse
    """
)

# Made of other operators, on every device: they do no work of their own.
COMPOSITE = aten(
    """
    __and__ __iand__ __ior__ __ixor__ __or__ __xor__ _add_batch_dim
    _autocast_to_full_precision _autocast_to_reduced_precision _backward
    _batch_norm_impl_index _batch_norm_impl_index_backward _cast_Byte _cast_Char
    _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short
    _choose_qparams_per_tensor _convolution_double_backward _convolution_mode
    _cufft_clear_plan_cache _cufft_get_plan_cache_max_size _cufft_get_plan_cache_size
    _cufft_set_plan_cache_max_size _debug_has_internal_overlap _dim_arange
    _embedding_bag_sparse_backward _fused_rms_norm _gather_sparse_backward
    _grid_sampler_2d_cpu_fallback_backward align_as align_tensors align_to refine_names rename
    _has_compatible_shallow_copy_type _is_zerotensor _lu_with_info _nnpack_available
    _pack_padded_sequence_backward _pad_circular _pad_enum _pad_packed_sequence
    _propagate_xla_data _remove_batch_dim _reshape_from_tensor _rowwise_prune
    _saturate_weight_to_fp16 _scaled_dot_product_attention_math _shape_as_tensor
    _sobol_engine_draw _sobol_engine_ff _sobol_engine_initialize_state
    _sobol_engine_scramble _sparse_bsc_tensor_unsafe _sparse_bsr_tensor_unsafe
    _sparse_compressed_tensor_unsafe _sparse_coo_tensor_unsafe _sparse_csc_tensor_unsafe
    _sparse_csr_tensor_unsafe _sparse_mm _thnn_differentiable_gru_cell_backward
    _thnn_differentiable_lstm_cell_backward _thnn_fused_lstm_cell_backward _to_cpu
    _unpack_dual _use_cudnn_rnn_flatten_weight _validate_sparse_bsc_tensor_args
    _validate_sparse_bsr_tensor_args _validate_sparse_compressed_tensor_args
    _validate_sparse_coo_tensor_args _validate_sparse_csc_tensor_args
    _validate_sparse_csr_tensor_args _version _weight_norm
    _weight_norm_differentiable_backward _wrapped_linear_prepack
    _wrapped_quantized_linear_prepacked absolute adaptive_max_pool1d adjoint
    affine_grid_generator_backward alpha_dropout arccos arccosh arcsin arcsinh arctan
    arctan2 arctanh argsort argwhere atleast_1d atleast_2d atleast_3d batch_norm bilinear
    broadcast_tensors broadcast_to can_cast cartesian_prod cdist chain_matmul chalf
    choose_qparams_optimized chunk clip coalesce column_stack combinations concat
    concatenate conj contiguous conv1d conv2d conv3d conv_tbc_backward conv_transpose1d
    conv_transpose2d conv_transpose3d corrcoef cosine_embedding_loss cosine_similarity cov
    cross cross_entropy_loss ctc_loss cudnn_is_acceptable cummaxmin_backward
    cumprod_backward cumulative_trapezoid data det diag diagflat diff dim divide dropout
    dsplit dstack einsum embedding_backward embedding_bag embedding_sparse_backward
    expand_as fake_quantize_per_channel_affine
    fake_quantize_per_channel_affine_cachemask_backward fake_quantize_per_tensor_affine
    fake_quantize_per_tensor_affine_cachemask_backward fbgemm_linear_fp16_weight
    fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
    fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
    fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix feature_alpha_dropout
    feature_dropout fft_fft fft_fft2 fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn
    fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft
    fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fill_diagonal fix flatten
    flatten_dense_tensors fliplr flipud float_power frobenius_norm
    fused_moving_avg_obs_fake_quant gather_backward ger get_device get_gradients gradient
    greater greater_equal grid_sampler group_norm gru gru_cell hinge_embedding_loss
    histogramdd hsplit hstack imag index_select_backward
    infinitely_differentiable_gelu_backward inner instance_norm inverse is_complex is_conj
    is_contiguous is_distributed is_floating_point is_inference is_leaf is_neg is_nonzero
    is_signed is_vulkan_available isclose isfinite isreal istft item kl_div kron l1_loss
    layer_norm less less_equal linalg_cholesky linalg_cond linalg_det linalg_diagonal
    linalg_eigh linalg_eigvalsh linalg_inv linalg_ldl_factor linalg_lu_factor linalg_matmul
    linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm
    linalg_slogdet linalg_solve linalg_solve_ex linalg_svd linalg_svdvals linalg_tensorinv
    linalg_tensorsolve linalg_vander linalg_vecdot log_sigmoid logdet lstm lstm_cell
    lu_solve mH mT margin_ranking_loss masked_select_backward matmul matrix_H matrix_exp
    matrix_exp_backward matrix_power max_pool1d max_pool1d_with_indices max_pool2d
    max_pool3d meshgrid moveaxis movedim msort multilabel_margin_loss multiply nanmean
    nanquantile narrow negative nested_to_padded_tensor nll_loss nll_loss2d nll_loss_nd
    nonzero_numpy norm_except_dim not_equal nuclear_norm numel numpy_T one_hot orgqr outer
    output_nr pad pad_sequence pairwise_distance pdist pin_memory pinverse poisson_nll_loss
    positive prelu promote_types qr quantile quantized_gru_cell quantized_lstm_cell
    quantized_rnn_relu_cell quantized_rnn_tanh_cell ravel real relu6 requires_grad reshape
    reshape_as resolve_conj resolve_neg result_type retain_grad retains_grad rms_norm
    rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack rrelu
    scaled_dot_product_attention selu set_data size slogdet slow_conv3d smm
    sparse_bsc_tensor sparse_bsr_tensor sparse_csc_tensor sparse_csr_tensor special_digamma
    special_erf special_erfc special_erfinv special_exp2 special_expit special_expm1
    special_gammainc special_gammaincc special_gammaln special_i0 special_log1p
    special_log_softmax special_logit special_logsumexp special_multigammaln special_ndtr
    special_polygamma special_psi special_round special_sinc special_softmax special_xlogy
    square stft storage_offset stride subtract sum_to_size svd swapaxes swapdims
    sym_is_contiguous sym_numel sym_size sym_storage_offset sym_stride take_along_dim
    tensor_split tensordot thnn_conv2d tile to to_dense to_dense_backward to_mkldnn_backward
    to_sparse to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr trace_backward
    trapezoid trapz triplet_margin_loss true_divide type_as unflatten
    unflatten_dense_tensors unsafe_chunk value_selecting_reduction_backward vander view_as
    vsplit vstack
    """
)

# The same of some overloads only; without a name it is the default one.
COMPOSITE_OVERLOADS = aten(
    """
    _convolution.deprecated _sparse_log_softmax.int _sparse_softmax.int _sparse_sum
    _sparse_sum.dim_dtype _sparse_sum.dtype _upsample_bicubic2d_aa.vec
    _upsample_bilinear2d_aa.vec _upsample_lanczos2d_aa.vec _upsample_nearest_exact1d.vec
    _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d conj_physical linalg_eigvals
    linalg_pinv linalg_pinv.atol_rtol_float linalg_pinv.rcond_tensor linear log_softmax.int
    max.other min.other repeat_interleave.self_Tensor repeat_interleave.self_int
    set_.source_Tensor_storage_offset softmax.int sparse_coo_tensor.indices
    sparse_coo_tensor.indices_size split.sizes sspaddmm std std.dim std_mean std_mean.dim
    upsample_bicubic2d.vec upsample_bilinear2d.vec upsample_linear1d.vec
    upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec
    upsample_trilinear3d.vec var var.dim var_mean var_mean.dim where where.Scalar
    where.ScalarOther where.ScalarSelf
    """
)
# Composite in some versions and builds of torch; others have a kernel.
SOMETIMES_COMPOSITE = aten("_fused_rms_norm _grid_sampler_2d_cpu_fallback_backward")
# List operators whose base has another name, or none.
LIST_BASES = {"powsum": "linalg__powsum", "clone": "clone"}
# Primitives are like the operator of aten that has their name, or this one.
PRIMITIVES = {
    "bessel_i0": "i0",
    "bessel_i0e": "special_i0e",
    "bessel_i1": "special_i1",
    "bessel_i1e": "special_i1e",
    "bessel_j0": "special_bessel_j0",
    "bessel_j1": "special_bessel_j1",
    "cbrt": "sqrt",
    "erf_inv": "erfinv",
    "erfcx": "special_erfcx",
    "isfinite": "isinf",
    "ndtri": "special_ndtri",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "spherical_bessel_j0": "special_spherical_bessel_j0",
    "xor_sum": "sum",
    "zeta": "special_zeta",
}


def kind(name: str) -> Kind:
    """Return by what rule the work of "aten::add.Tensor" is known; "lists" are foreach operators.

    The order is that of `measure.operators.classify`.
    """
    forms = _forms(name)
    composite = name in COMPOSITE_OVERLOADS or any(form in COMPOSITE for form in forms)
    return "composite" if composite else kernel_kind(name)


def kernel_kind(name: str) -> Kind:
    """Return the kind of those overloads that are not composite."""
    forms = _forms(name)
    if any(map(find, forms)):
        return "formula"
    if any(form in FREE or form.removesuffix("_copy") in MOVING for form in forms):
        return "free"
    if name.startswith("aten::_foreach_"):
        return "lists"
    if any(form in POINTWISE for form in forms):
        return "pointwise"
    return "reduction" if any(form in REDUCTION for form in forms) else "unknown"


def _forms(name: str) -> tuple[str, str]:
    """Return the name without overload, and that without the mark of working in place."""
    plain = name.partition(".")[0]
    return plain, plain if plain.startswith("aten::__") else plain.removesuffix("_")
