"""The kernels that CUDA would run, for tensors without values.

On meta tensors what torch composes of operators arrives in pieces: attention as products that write
and read all scores, recurrent layers as a product per step. A GPU runs one kernel. Dropout is one
operator there that saves a mask of a byte per element, where the CPU makes a mask of random numbers
in the input's dtype; RMSNorm is one that saves its input and a number per row.

Attention by the kernel that a GPU would run: flash, memory-efficient, or plain products.

The conditions are those of torch's `sdp_utils.cpp` for CUDA. cuDNN's kernel, which torch prefers on
some GPUs, moves what the flash kernel moves. Plain products write the scores and read them again.

cuDNN's operator takes all steps, layers and directions at once, where meta tensors take a product
per step. It is `torchgauge::cudnn_rnn` here: torch's own returns no reserve without a GPU.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.functional import linear

from torchgauge import torch_private
from torchgauge.formulas.families.recurrent import GATES, GRU, LSTM
from torchgauge.measure.work.internals import aten_operator, decomposed, graph_task
from torchgauge.signals import replaced, restoring

_OPERANDS = (
    "Tensor input, Tensor[] weight, int weight_stride0, Tensor? weight_buf, Tensor hx, Tensor? cx"
)
_OPTIONS = (
    "int mode, int hidden_size, int proj_size, int num_layers, bool batch_first, float dropout, "
    "bool train, bool bidirectional, int[] batch_sizes, Tensor? dropout_state"
)


def layers(mode: int) -> Callable[..., Any]:
    """Return what stands for `aten::lstm.input` and its like."""

    def replacement(
        x: torch.Tensor, hx: Any, params: Any, _has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        options = (num_layers, batch_first, dropout, train, bidirectional)
        return _run(mode, x, hx, params, options, [])

    return replacement


def packed_layers(mode: int) -> Callable[..., Any]:
    """Return what stands for `aten::lstm.data` and its like: sequences of several lengths."""

    def replacement(
        x: torch.Tensor, batch_sizes: torch.Tensor, hx: Any, params: Any, _has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool,
    ) -> Any:  # fmt: skip
        if batch_sizes.is_meta:
            return None
        options = (num_layers, False, dropout, train, bidirectional)
        return _run(mode, x, hx, params, options, batch_sizes.tolist())

    return replacement


def _run(
    mode: int, x: torch.Tensor, hx: Any, params: Any, options: tuple[Any, ...], sizes: list[int]
) -> Any:
    state, cell = hx if mode == LSTM else (hx, None)
    hidden = (state if cell is None else cell).shape[-1]
    projected = state.shape[-1] if state.shape[-1] != hidden else 0
    stride = len(params) // state.shape[0]
    arguments = (mode, hidden, projected, *options, sizes, None)
    results = _Recurrent.apply(stride, arguments, x, state, cell, *params)  # type: ignore[no-untyped-call]
    output, hy, cy = results
    return (output, hy, cy) if mode == LSTM else (output, hy)


class _Recurrent(torch.autograd.Function):
    """cuDNN's recurrent layers by operators of shapes alone."""

    @staticmethod
    def forward(
        ctx: Any, stride: int, arguments: Any, x: torch.Tensor, hx: torch.Tensor, cx: Any,
        *weights: Any,
    ) -> Any:  # fmt: skip
        output, hy, cy, reserve, _ = torch.ops.torchgauge.cudnn_rnn(
            x, weights, stride, None, hx, cx, *arguments
        )
        ctx.save_for_backward(x, hx, cx, output, reserve, *weights)
        ctx.stride, ctx.arguments = stride, arguments
        return output, hy, cy

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, hx, cx, output, reserve, *weights = ctx.saved_tensors
        needs_gradient = ctx.needs_input_grad
        mask = [needs_gradient[2], needs_gradient[3], needs_gradient[4], any(needs_gradient[5:])]
        for_x, for_hx, for_cx, for_weights = torch.ops.torchgauge.cudnn_rnn_backward(
            x, weights, ctx.stride, None, hx, cx, output, *gradients[: 2 + (cx is not None)],
            *([None] * (cx is None)), *ctx.arguments, reserve, mask,
        )  # fmt: skip
        return None, None, for_x, for_hx, for_cx if mask[2] else None, *for_weights


def _layer_shapes(
    x: torch.Tensor, weight: Any, stride: int, _buffer: Any, hx: torch.Tensor, cx: Any, mode: int,
    hidden: int, projected: int, num_layers: int, *options: Any,
) -> Any:  # fmt: skip
    """Make the results of cuDNN's layers, and a reserve as large as what the backward pass reads.

    That is gates and cells of every step, and the results of all layers but the last. How cuDNN
    pads them is not known.
    """
    outputs = aten_operator("_cudnn_rnn")(
        x, weight, stride, x.new_empty(0), hx, cx, mode, hidden, projected, num_layers, *options
    )
    width = outputs[0].shape[-1]
    per_step = hx.shape[0] * (GATES.get(mode, 0) + (mode == LSTM)) * hidden
    per_step += (num_layers - 1) * width
    train, rows = options[2], outputs[0].numel() // width
    size = rows * per_step * x.itemsize if train else 0
    return *outputs[:3], x.new_empty(size, dtype=torch.uint8), x.new_empty(0)


def _layer_gradients(
    x: torch.Tensor, weight: Any, _stride: int, _buffer: Any, hx: torch.Tensor, cx: Any, *_: Any
) -> Any:
    for_cx = x.new_empty(0) if cx is None else torch.empty_like(cx)
    return torch.empty_like(x), torch.empty_like(hx), for_cx, [*map(torch.empty_like, weight)]


def lstm_cell(
    x: torch.Tensor, hx: Any, w_ih: torch.Tensor, w_hh: torch.Tensor, *biases: Any
) -> Any:
    """Run what CUDA runs for a step of an LSTM."""
    gates = linear(x, w_ih), linear(hx[0], w_hh)
    return aten_operator("_thnn_fused_lstm_cell")(*gates, hx[1], *biases)[:2]


def gru_cell(
    x: torch.Tensor, hx: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor, *biases: Any
) -> Any:
    """Run what CUDA runs for a step of a GRU."""
    gates = linear(x, w_ih), linear(hx, w_hh)
    return aten_operator("_thnn_fused_gru_cell")(*gates, hx, *biases)[0]


def _gru_shapes(gates: torch.Tensor, _hidden_gates: Any, hx: torch.Tensor, *_biases: Any) -> Any:
    return torch.empty_like(hx), gates.new_empty(hx.shape[0], 5 * hx.shape[1])


def _gru_gradients(gradient: torch.Tensor, _workspace: Any, has_bias: bool) -> Any:
    rows, hidden = gradient.shape
    gates = [gradient.new_empty(rows, 3 * hidden) for _ in "ih"]
    biases = [gradient.new_empty(3 * hidden) if has_bias else gradient.new_empty(0) for _ in "ih"]
    return *gates, torch.empty_like(gradient), *biases


# Operators of ours by their schemas, and torch's without a meta kernel: what they return.
OPERATORS: dict[str, Callable[..., Any]] = {
    f"cudnn_rnn({_OPERANDS}, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)": _layer_shapes,
    f"cudnn_rnn_backward({_OPERANDS}, Tensor output, Tensor? grad_output, Tensor? grad_hy, "
    f"Tensor? grad_cy, {_OPTIONS}, Tensor reserve, bool[4] output_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor[])": _layer_gradients,
}
SHAPES: dict[str, Callable[..., Any]] = {
    "_thnn_fused_gru_cell": _gru_shapes,
    "_thnn_fused_gru_cell_backward": _gru_gradients,
}


Kernel = Literal["flash", "efficient", "math"]

_FUSED_ATTENTION_HALF = (torch.float16, torch.bfloat16)
_LARGEST_FLASH_HEAD = 256
_BIAS_ALIGNMENT = 8  # elements of a row of the mask, in the efficient kernel
_MISALIGNED_HEAD = 8  # elements: the flash kernel gets padded heads


class Attention(NamedTuple):
    """The arguments of one call of `scaled_dot_product_attention`, by its schema's names."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def kernel_of(call: Attention, *, flash: bool = True) -> Kernel:
    """Return the kernel that CUDA takes; `flash` is whether the device has flash kernels.

    What no fused kernel takes, wrong shapes among it, is for plain products.
    """
    query, key, value = call.query, call.key, call.value
    tensors = (query, key, value)
    if not (
        all(tensor.dim() == 4 and tensor.dtype == query.dtype for tensor in tensors)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1:3] == value.shape[1:3]
        and _heads_fit(query.shape[1], key.shape[1], grouped=call.enable_gqa)
        and query.shape[-1] == key.shape[-1]
        and not (call.is_causal and call.attn_mask is not None)
        and all(tensor.stride(-1) == 1 or tensor.shape[-1] == 1 for tensor in tensors)
        and math.prod(query.shape) * math.prod(key.shape) * value.shape[-1]
    ):
        return "math"
    head = query.shape[-1]
    if (
        flash
        and _enabled("flash")
        and query.dtype in _FUSED_ATTENTION_HALF
        and call.attn_mask is None
        and value.shape[-1] == head <= _LARGEST_FLASH_HEAD
        and not (call.is_causal and query.shape[-2] != key.shape[-2])
    ):
        return "flash"
    alignment = 8 if query.dtype in _FUSED_ATTENTION_HALF else 4
    if (
        _enabled("mem_efficient")
        and query.dtype in (*_FUSED_ATTENTION_HALF, torch.float32)
        and not head % alignment
        and not value.shape[-1] % alignment
    ):
        return "efficient"
    return "math"


def fused(call: Attention, kernel: Kernel) -> torch.Tensor:
    """Run the operators that CUDA runs around a fused kernel, and the kernel's own."""
    if kernel == "flash":
        return _flash(call)
    needs_gradient = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (call.query, call.key, call.value)
    )
    arguments = *call[:3], _bias(call), needs_gradient, call.dropout_p, call.is_causal
    name = "_scaled_dot_product_efficient_attention"
    if call.key.shape[1] != call.query.shape[1]:
        # Its gradients have the keys' own heads, which of the other operator they do not on meta.
        name = "_scaled_dot_product_cudnn_attention"
    return aten_operator(name)(*arguments, scale=call.scale)[0]  # type: ignore[no-any-return]


def _enabled(kernel: str) -> bool:
    """Whether the code around has left a kernel on (`torch.nn.attention.sdpa_kernel`)."""
    return bool(getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")())


def _heads_fit(queries: int, keys: int, *, grouped: bool) -> bool:
    return queries == keys or (keys > 0 and queries % keys == 0 and (grouped or keys == 1))


def _flash(call: Attention) -> torch.Tensor:
    head = call.query.shape[-1]
    padding = -head % _MISALIGNED_HEAD
    heads = [call.query, call.key, call.value]
    if padding:
        heads = [torch.nn.functional.pad(tensor, (0, padding)) for tensor in heads]
    outputs = aten_operator("_scaled_dot_product_flash_attention")(
        *heads, call.dropout_p, call.is_causal, scale=call.scale
    )
    return outputs[0][..., :head] if padding else outputs[0]  # type: ignore[no-any-return]


def _bias(call: Attention) -> torch.Tensor | None:
    """Return the mask as the efficient kernel reads it: of the queries' type, in aligned rows."""
    mask = call.attn_mask
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = mask.to(call.query.dtype)
    keys = mask.shape[-1]
    if padding := -keys % _BIAS_ALIGNMENT:
        mask = torch.nn.functional.pad(mask, (0, padding))[..., :keys]
    return mask.expand(*call.query.shape[:3], call.key.shape[2])


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_CUDA_KERNELS_HALF = (torch.float16, torch.bfloat16)


class CudaKernels:
    """Puts CUDA's kernels in the place of composite operators on tensors without values.

    `flash` is whether the device has flash attention. `kernel_calls` counts the forward's calls by
    kernel.
    """

    def __init__(self, *, flash: bool = True) -> None:
        self.flash = flash
        self.kernel_calls = Counter[str]()

    @restoring
    def dispatched(self) -> Iterator[None]:
        """Take them for meta tensors until the block ends."""
        _operators()
        library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        try:
            for name in _REPLACEMENTS:
                kernel = functools.partial(self.call, aten_operator(name))
                library.impl(name, kernel, "AutogradMeta")
            for name, shapes in SHAPES.items():
                library.impl(name, shapes, "Meta")
            with replaced([(torch.autocast, "__init__", _autocast)]):
                yield
        finally:
            library._destroy()  # noqa: SLF001 - there is no public name for it

    @restoring
    def everywhere(self) -> Iterator[None]:
        """Take them for fake tensors of the CPU too, where the functions of torch are called."""
        functions = [
            (owner, function, functools.partial(self._function, getattr(owner, function), name))
            for owner, function, name in _FUNCTIONS
        ]
        with self.dispatched(), replaced(functions):
            yield

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a composite operator by CUDA's kernel if there is one, else what it is made of."""
        name = function.name().removeprefix("aten::")
        if name in _REPLACEMENTS and _is_meta(args[0]):
            replaced = self._replaced(name, args, kwargs)
            if replaced is not None:
                return replaced
        return decomposed(function, args, kwargs)

    def _function(self, original: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        tensor = next(iter((*args, *kwargs.values())), None)
        if name == "dropout":  # of distributed tensors too: it needs no collective
            tensor = getattr(tensor, "_local_tensor", tensor)
        if isinstance(tensor, torch_private.FakeTensor) or _is_meta(tensor):
            replaced = self._replaced(name, args, kwargs)
            if replaced is not None:
                return replaced
        return original(*args, **kwargs)

    def _replaced(self, name: str, args: Any, kwargs: Any) -> Any:
        title, replacement = _REPLACEMENTS[name]
        if name == _ATTENTION:
            call = Attention(*args, **kwargs)
            kernel = kernel_of(call, flash=self.flash)
            title = f"{kernel} attention"
            replaced = None if kernel == "math" else fused(call, kernel)
        else:
            replaced = replacement(*args, **kwargs)
        if title and graph_task() == -1 and (replaced is not None or name == _ATTENTION):
            self.kernel_calls[title] += 1
        return replaced


_AUTOCAST = torch.autocast.__init__


@functools.wraps(_AUTOCAST)
def _autocast(context: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
    # Torch refuses to turn off what meta tensors have none of: `autocast(x.device.type, ...)`.
    is_off = not (args[1] if len(args) > 1 else kwargs.get("enabled", True))
    _AUTOCAST(context, "cpu" if device_type == "meta" and is_off else device_type, *args, **kwargs)


def _is_meta(tensor: Any) -> bool:
    return type(tensor) in _PLAIN and tensor.is_meta and tensor.layout is torch.strided


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor | None:
    if not train or not 0 < p < 1:
        return None
    return torch.native_dropout(input, p, True)[0]


def _rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor | None:
    shape = list(normalized_shape)
    if list(input.shape[-len(shape) :]) != shape:
        return None  # torch says what does not fit
    normalized: torch.Tensor = _RmsNorm.apply(input, shape, weight, eps)  # type: ignore[no-untyped-call]
    return normalized


class _RmsNorm(torch.autograd.Function):
    """RMSNorm by an operator of shapes alone, which saves what `aten::_fused_rms_norm` saves."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: list[int], weight: Any, eps: Any) -> torch.Tensor:
        y, scale = _operators()[1].rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, scale, weight)
        ctx.shape = shape
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, scale, weight = ctx.saved_tensors
        gradient, own = _operators()[1].rms_norm_backward(
            gradients[0], x, ctx.shape, scale, weight, [True, weight is not None]
        )
        return gradient, None, None if weight is None else own, None


@functools.cache
def _operators() -> Any:
    """Define the operators that torch has on CUDA alone, which take no values here."""
    library: Any = torch.library.Library("torchgauge", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(
        "rms_norm(Tensor x, int[] shape, Tensor? weight, float? eps) -> (Tensor, Tensor)"
    )
    library.define(
        "rms_norm_backward(Tensor gradient, Tensor x, int[] shape, Tensor scale, Tensor? weight, "
        "bool[2] mask) -> (Tensor, Tensor)"
    )
    for schema, shapes in OPERATORS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], shapes, "Meta")
    library.impl("rms_norm", _shapes, "Meta")
    library.impl("rms_norm_backward", _backward_shapes, "Meta")
    return library, torch.ops.torchgauge


def _shapes(
    x: torch.Tensor, shape: list[int], weight: Any, _eps: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.shape[: x.dim() - len(shape)]
    dtype = torch.float32 if x.dtype in _CUDA_KERNELS_HALF else x.dtype
    scale = x.new_empty((*rows, *(1 for _ in shape)), dtype=dtype)
    output = x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    return torch.empty_like(x, dtype=output), scale


def _backward_shapes(
    _gradient: Any, x: torch.Tensor, _shape: Any, _scale: Any, weight: Any, _mask: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty(0) if weight is None else torch.empty_like(weight)


_ATTENTION = "scaled_dot_product_attention"
# By overload: how the record names the kernel, and what runs it.
_REPLACEMENTS: dict[str, tuple[str, Callable[..., Any]]] = {
    _ATTENTION: ("", fused),
    "dropout": ("", _dropout),
    "rms_norm": ("fused RMSNorm", _rms_norm),
    "lstm_cell": ("fused LSTM cell", lstm_cell),
    "gru_cell": ("fused GRU cell", gru_cell),
}
for _name, _mode in (("lstm", LSTM), ("gru", GRU), ("rnn_tanh", 1), ("rnn_relu", 0)):
    _title = f"cuDNN {_name.partition('_')[0].upper()}"
    _REPLACEMENTS[f"{_name}.input"] = _title, layers(_mode)
    _REPLACEMENTS[f"{_name}.data"] = _title, packed_layers(_mode)

# Python's functions of torch.nn.functional call these.
_FUNCTIONS: tuple[tuple[Any, str, str], ...] = (
    (torch_private.functional_variants, "dropout", "dropout"),
    (torch, "dropout", "dropout"),
    (torch, "rms_norm", "rms_norm"),
    (torch.nn.functional, _ATTENTION, _ATTENTION),
)
