"""What operators save for their backward pass."""

from __future__ import annotations

# Operators whose derivative uses what they return, by torch 2.13's list of derivatives.
_SAVING = """
    _batch_norm_no_update _batch_norm_with_update _cdist_forward _ctc_loss
    _cudnn_attention_forward _cudnn_ctc_loss _cudnn_rnn _efficient_attention_forward
    _embedding_bag _euclidean_dist _flash_attention_forward _fused_dropout _fused_rms_norm
    _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd _log_softmax
    _masked_softmax _native_batch_norm_legit _native_batch_norm_legit_no_training
    _pack_padded_sequence _pdist_forward _safe_softmax _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable
    _softmax _standard_gamma _thnn_fused_gru_cell _thnn_fused_lstm_cell _weight_norm_interface
    adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax cholesky_inverse cholesky_solve
    copysign cudnn_batch_norm cummax cummin cumprod dist exp exp2 expm1 fractional_max_pool2d
    fractional_max_pool3d frexp hypot index_reduce kthvalue ldexp linalg_cholesky_ex linalg_eig
    linalg_householder_product linalg_inv_ex linalg_lstsq linalg_lu linalg_lu_factor_ex
    linalg_lu_solve linalg_pinv linalg_qr linalg_solve_triangular linalg_vector_norm
    log_sigmoid_forward logcumsumexp logsumexp max max_pool2d_with_indices
    max_pool3d_with_indices median min miopen_batch_norm miopen_rnn mkldnn_max_pool2d
    mkldnn_max_pool3d mkldnn_rnn_layer mode multilabel_margin_loss_forward nanmedian
    native_batch_norm native_dropout native_group_norm native_layer_norm nll_loss2d_forward
    nll_loss_forward norm ormqr polar prod reciprocal relu rsqrt scatter_reduce segment_reduce
    sgn sigmoid sort special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtri sqrt std std_mean tan tanh topk triangular_solve
"""
_SAVES_RESULT = frozenset(f"aten::{name}" for name in _SAVING.split())


def saves_result(name: str) -> bool:
    """Return whether an operator, "aten::add_.Tensor", keeps what it returns for its derivative."""
    return name.partition(".")[0].removesuffix("_") in _SAVES_RESULT
