"""Operators known to do no arithmetic: those that move bytes, and those that move none."""

from __future__ import annotations


def aten(names: str) -> frozenset[str]:
    """Return the full names of operators of torch: "aten::mm"."""
    return frozenset(f"aten::{name}" for name in names.split())


def _other(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Shapes and strides of the same memory. torch's schemas say so of most views; these are the ones
# that they do not, and the ones a recorded trace names without a schema.
VIEWS = aten(
    """
    alias as_strided detach diagonal expand lift lift_fresh permute select slice split
    split_with_sizes squeeze swapaxes swapdims t transpose unbind unfold unsqueeze values view
    view_as _unsafe_view _reshape_alias unsafe_split unsafe_split_with_sizes unsafe_chunk
    _conj _neg_view view_as_complex view_as_real indices _indices _values
    crow_indices col_indices ccol_indices row_indices _mkldnn_reshape _mkldnn_transpose
    _nested_get_offsets _nested_get_lengths _nested_get_min_seqlen _nested_get_max_seqlen
    _nested_get_jagged_dummy _nested_get_ragged_idx _nested_tensor_size _nested_tensor_strides
    _nested_tensor_storage_offsets q_per_channel_scales q_per_channel_zero_points
    """
) | _other(
    """prims::as_strided prims::broadcast_in_dim prims::collapse_view prims::split_dim
    prims::squeeze prims::transpose prims::view_of prims::view_of_dtype prims::real prims::imag
    prims::conj inductor::_reinterpret_tensor inductor::_alloc_from_pool"""
)

# Answers about a tensor, changes to its description, checks, marks for the profiler.
METADATA = aten(
    """
    _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async
    _functional_assert_scalar _functional_sym_constrain_range
    _functional_sym_constrain_range_for_size sym_constrain_range sym_constrain_range_for_size
    _make_dep_token _coalesced _dimI _dimV _nnz dense_dim sparse_dim is_coalesced
    _has_same_storage_numel is_same_size is_set_to is_pinned q_per_channel_axis q_scale q_zero_point
    qscheme _linalg_check_errors _validate_compressed_sparse_indices _print record_stream
    _use_cudnn_ctc_loss _use_miopen_ctc_loss resize resize_as resize_as_sparse _resize_output
    sparse_resize sparse_resize_and_clear set set_data _version requires_grad_ retain_grad
    _nested_tensor_from_mask_left_aligned shallow_copy_data
    sym_size sym_stride sym_numel sym_storage_offset sym_is_contiguous size stride is_contiguous
    is_non_overlapping_and_dense is_strides_like_format storage_offset numel
    _cslt_sparse_mm_search
    """
) | _other(
    """prims::_make_token prims::_sink_tokens prims::resize inductor::resize_storage_bytes_
    profiler::_record_function_enter profiler::_record_function_enter_new
    profiler::_record_function_exit mkldnn::_is_mkldnn_acl_supported
    mkldnn::_is_mkldnn_bf16_supported mkldnn::_is_mkldnn_fp16_supported mkldnn::_nbytes
    mkldnn::data_ptr mkldnn::_get_mkldnn_serialized_md"""
)

# New tensors whose values come from nowhere: by convention neither work nor traffic.
CREATION = aten(
    """
    arange bartlett_window blackman_window hamming_window hann_window kaiser_window empty empty_like
    empty_permuted empty_quantized empty_strided _empty_affine_quantized
    _empty_per_channel_affine_quantized _efficientzerotensor eye fft_fftfreq fft_rfftfreq from_file
    full full_like linspace logspace new_empty new_empty_strided new_full new_ones new_zeros
    _new_zeros_with_same_feature_meta ones ones_like range scalar_tensor tril_indices triu_indices
    zeros zeros_like _cudnn_init_dropout_state rand rand_like randn randn_like randint randint_like
    randperm
    """
) | _other(
    """prims::empty prims::empty_permuted prims::empty_strided prims::full prims::full_like
    prims::iota prims::scalar_tensor prims::normal prims::maximum_value prims::minimum_value
    rngprims::philox_rand debugprims::load_tensor"""
)

# Random numbers count as no work: a generator's integer arithmetic is no FLOP, and how much it is
# depends on the generator. Filling moves what it writes.
RANDOM = aten(
    """
    bernoulli binomial cauchy exponential geometric log_normal multinomial normal normal_functional
    poisson random uniform _sample_dirichlet _standard_gamma _philox_key_fold_in _philox_key_split
    _philox_normal _philox_uniform _fill_mem_eff_dropout_mask_
    """
) | frozenset({"prims::uniform"})

# The same values elsewhere, or under another type or layout.
COPIES = aten(
    """
    clone copy _copy_from _copy_from_and_resize copy_sparse_to_sparse _lazy_clone _to_copy
    _reshape_copy _pin_memory contiguous cat stack _stack _chunk_cat block_diag repeat roll
    rot90 flip pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diag_embed fill
    zero complex constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d im2col narrow_copy _local_scalar_dense
    _to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc to_mkldnn
    to_padded_tensor _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward _coalesce
    _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _pack_padded_sequence
    _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor
    _nested_tensor_from_mask _nested_tensor_from_tensor_list int_repr _cudnn_rnn_flatten_weight
    mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight _convert_weight_to_int4pack
    _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight _cslt_compress
    _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _sparse_mask_projection
    _to_sparse_semi_structured _sparse_semi_structured_apply _sparse_semi_structured_apply_dense
    _sparse_semi_structured_tile sparse_compressed_tensor sparse_coo_tensor
    _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors
    _sparse_compressed_tensor_with_dims _spdiags sparse_mask
    _nested_compute_contiguous_strides_offsets
    """
) | _other(
    """prims::clone prims::convert_element_type prims::copy_strided prims::copy_to prims::device_put
    prims::cat prims::fill prims::collapse prims::reshape prims::rev prims::item
    mkldnn::_reorder_convolution_transpose_weight mkldnn::_reorder_convolution_weight
    mkldnn::_reorder_linear_weight mkldnn::_reorder_mkldnn_rnn_layer_weight"""
)

# Values picked by position or by a mask, and gradients that only put them back.
INDEXING = aten(
    """
    as_strided_scatter diagonal_backward diagonal_scatter embedding gather index index_copy
    index_fill index_select lu_unpack masked_fill masked_scatter masked_scatter_backward
    masked_select max_unpool2d max_unpool3d nonzero nonzero_static select_backward select_scatter
    slice_backward slice_scatter take tril triu where _unsafe_index _unsafe_masked_index
    repeat_interleave upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _nested_select_backward _nested_sum_backward _sparse_sum_backward
    """
) | frozenset({"prims::where", "prims::as_strided_scatter"})

# The lists that optimizers keep: theirs are the ones without arithmetic.
FOREACH = aten("_foreach_copy _foreach_zero _foreach_clone")

FREE = VIEWS | METADATA | CREATION | RANDOM | COPIES | INDEXING | FOREACH
# These move nothing either.
STILL = VIEWS | METADATA | CREATION
