"""Counts the work of one call of a duck-typed model: known layers by shape, others as they run.

A layer is known by the name of its class or of a class that it comes from. Its weights say the
rest; where they do not fit the input, nothing is known of it, and it is counted as it runs.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from torchgauge.compat.arrays.calling import like, mapped, not_callable, run
from torchgauge.compat.arrays.memory import preserved
from torchgauge.errors import MeasurementError
from torchgauge.formulas.families.attention import SOFTMAX
from torchgauge.formulas.families.convolution import forward as convolution
from torchgauge.formulas.families.normalization import MEAN, NORMALISE, VARIANCE
from torchgauge.formulas.families.pooling import adaptive, pooled
from torchgauge.formulas.families.softmax import softmax
from torchgauge.formulas.operand import FREE, Described, Work, product, vector
from torchgauge.measure.arrays import members
from torchgauge.measure.arrays.members import (
    CALLS,
    Array,
    array_of,
    described,
    entries,
    method_of,
    objects,
    parameters,
)
from torchgauge.measure.arrays.tracked import ArrayObserver, Tracked, counting, tracked
from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.signals import replaced
from torchgauge.targets.inputs.inputs import Inputs

Shape = tuple[int, ...]

_NORMS = ("batchnorm", "layernorm", "groupnorm", "instancenorm")
_ACTIVATIONS = """
    relu relu6 leakyrelu prelu elu selu celu gelu silu swish mish sigmoid logsigmoid tanh softplus
    softsign hardswish hardsigmoid hardtanh tanhshrink
"""


class Call(NamedTuple):
    """One call of a layer: the layer, its first array argument, the other ones."""

    layer: Any
    operand: Described
    other_operands: tuple[Described, ...]


class LayerResult(NamedTuple):
    """The work of a call; `shape` is that of its output, None where it must run to tell.

    `unbatched` says that the input was one sample without a dimension for the batch, `gathers` that
    of the weights only the rows are read that are returned.
    """

    work: Work
    shape: Shape | None
    unbatched: bool = False
    gathers: bool = False


Rule = Callable[[Call], LayerResult | None]


def rule(kind: type) -> Rule | None:
    """Return the rule of a class; None for an unknown layer, or one that calls another forward."""
    for base in kind.__mro__:
        name = base.__name__.lower().replace("_", "").removesuffix("layer")
        layer_rule = _RULES.get(name) or _RULES.get(re.sub(r"[123]d$", "", name))
        if layer_rule is not None:
            own = all(method_of(kind, call) is method_of(base, call) for call in CALLS)
            return layer_rule if own else None
    return None


def _linear(call: Call) -> LayerResult | None:
    """[..., m] = [..., k] · [k, m] or [m, k]: the side that is the input's tells which."""
    weight, operand = _array(call.layer, "weight", "weights", "w", "kernel"), call.operand
    if weight is None or weight.ndim != 2 or not operand.shape:
        return None
    inner, sides = operand.shape[-1], weight.shape
    if inner not in sides:
        return None
    wide = sides[1] if sides[0] == inner else sides[0]
    work = product(math.prod(operand.shape) * wide, operand)
    return LayerResult(work, (*operand.shape[:-1], wide))


def _convolution(call: Call) -> LayerResult | None:
    """[n, co, *out] of [n, ci, *in] and [co, ci / groups, *kernel]."""
    weight, operand = _array(call.layer, "weight", "weights", "w", "kernel"), call.operand
    if weight is None or weight.ndim < 3:
        return None
    spatial = weight.ndim - 2
    batched, unbatched = _batched(operand, spatial)
    groups = _attribute(call.layer, "groups", default=1)
    if batched is None or batched[1] != weight.shape[1] * groups:
        return None
    out = _windows(call.layer, batched[2:], weight.shape[2:], stride=1)
    if out is None:
        return None
    output = Described((batched[0], weight.shape[0], *out), operand.dtype, (), operand.itemsize)
    work = convolution(operand, described(weight), outputs=output)
    return LayerResult(work, output.shape[1 if unbatched else 0 :], unbatched)


def _pool(call: Call) -> LayerResult | None:
    """One per element of each window; the stride is the window's side unless given."""
    operand, kernel = call.operand, _attribute(call.layer, "kernel_size", "pool_size", "size")
    digit = re.search(r"([123])d", type(call.layer).__name__, re.IGNORECASE)
    spatial = int(digit[1]) if digit else len(operand.shape) - 2
    batched, unbatched = _batched(operand, spatial)
    if kernel is None or batched is None:
        return None
    window = _per_dimension(kernel, spatial)
    out = _windows(call.layer, batched[2:], window, stride=window)
    if out is None or spatial not in (1, 2, 3):
        return None
    output = operand._replace(shape=(*batched[:2], *out))
    work = pooled(spatial, operand, window, output)
    return LayerResult(work, output.shape[1 if unbatched else 0 :], unbatched)


def _adaptive_pool(call: Call) -> LayerResult | None:
    operand, size = call.operand, _attribute(call.layer, "output_size", default=1)
    if len(operand.shape) != 4:
        return None
    output = operand._replace(shape=(*operand.shape[:2], *_per_dimension(size, 2)))
    return LayerResult(adaptive(2, operand, output), output.shape)


def _norm(call: Call) -> LayerResult:
    """Statistics where the layer keeps none, the normalised value, weight and bias."""
    layer, operand = call.layer, call.operand
    has_statistics = _array(layer, "running_mean", "running_var", "moving_mean") is not None
    statistics = (
        0 if has_statistics and "batch" in type(layer).__name__.lower() else MEAN + VARIANCE
    )
    return _per_element(statistics + NORMALISE + _affine(layer), operand)


def _softmax(call: Call) -> LayerResult:
    return LayerResult(softmax(call.operand), call.operand.shape)


def _no_work(call: Call) -> LayerResult:
    return LayerResult(FREE, call.operand.shape)


def _embedding(call: Call) -> LayerResult | None:
    """A row of the table for each index: nothing is computed."""
    table = _array(call.layer, "weight", "weights", "w", "table", "embedding")
    if table is None or table.ndim != 2:
        return None
    return LayerResult(FREE, (*call.operand.shape, table.shape[1]), gathers=True)


def _attention(call: Call) -> LayerResult | None:
    """Queries with keys, weights with values, a softmax between, and every projection of a token.

    A projection is a matrix among the layer's parameters, which each token meets once. Queries and
    keys of other lengths, and grouped heads, are not known by shape.
    """
    layer, operand = call.layer, call.operand
    grouped = _attribute(layer, "num_kv_heads", "n_kv_heads", "num_key_value_heads")
    heads = _attribute(layer, "num_heads", "n_heads", "heads", "nhead", "n_head")
    if heads is None and "multi" not in type(layer).__name__.lower():
        heads = 1
    if heads is None or grouped not in (None, heads) or len(operand.shape) not in (2, 3):
        return None
    like = [other for other in call.other_operands if len(other.shape) == len(operand.shape)]
    if any(other.shape != operand.shape for other in like if other.dtype == operand.dtype):
        return None
    length, width = operand.shape[-2:]
    samples = operand.shape[0] if len(operand.shape) == 3 else 1
    matrices = sum(array.size for _, array in parameters(layer) if array.ndim == 2)
    pairs = samples * length * length
    work = product(samples * length * matrices + 2 * pairs * width, operand)
    return LayerResult(work._replace(vector=SOFTMAX * heads * pairs), None)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("linear", "dense", "fullyconnected"), _linear),
    **dict.fromkeys(("conv", "convolution"), _convolution),
    **dict.fromkeys(("maxpool", "avgpool", "averagepool", "maxpooling", "averagepooling"), _pool),
    **dict.fromkeys(("adaptiveavgpool", "adaptivemaxpool"), _adaptive_pool),
    **dict.fromkeys(_NORMS, _norm),
    "rmsnorm": lambda call: _per_element(3 + _affine(call.layer), call.operand),
    **dict.fromkeys(_ACTIVATIONS.split(), lambda call: _per_element(1, call.operand)),
    **dict.fromkeys(("softmax", "logsoftmax"), _softmax),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "identity"), _no_work),
    "embedding": _embedding,
    **dict.fromkeys(("multiheadattention", "multiheadselfattention", "selfattention"), _attention),
}


def _per_element(operations: int, operand: Described) -> LayerResult:
    return LayerResult(vector(operations * math.prod(operand.shape), operand), operand.shape)


def _affine(layer: Any) -> int:
    names = ("weight", "gamma", "scale"), ("bias", "beta", "shift")
    return sum(_array(layer, *synonyms) is not None for synonyms in names)


def _batched(operand: Described, spatial: int) -> tuple[Shape | None, bool]:
    """Return the shape with a batch, and whether it had none; None where it has another rank."""
    rank = len(operand.shape)
    if rank == spatial + 1:
        return (1, *operand.shape), True
    return (operand.shape, False) if rank == spatial + 2 else (None, False)


def _windows(layer: Any, sizes: Shape, kernel: Shape, *, stride: Any) -> Shape | None:
    """Return how many windows fit along each dimension."""
    own_stride = _attribute(layer, "stride", "strides")
    steps = _per_dimension(stride if own_stride is None else own_stride, len(sizes))
    spread = _per_dimension(_attribute(layer, "dilation", default=1), len(sizes))
    reach = [gap * (side - 1) + 1 for gap, side in zip(spread, kernel, strict=True)]
    padding = _attribute(layer, "padding", "pad", default=0)
    if isinstance(padding, str):
        if padding.lower() == "same":
            return tuple(-(-size // step) for size, step in zip(sizes, steps, strict=True))
        padding = 0
    edges = _per_dimension(padding, len(sizes))
    up = -1 if _attribute(layer, "ceil_mode", default=False) else 1
    spans = zip(sizes, edges, reach, steps, strict=True)
    out = tuple(up * (up * (size + 2 * edge - far) // step) + 1 for size, edge, far, step in spans)
    return out if min(out) > 0 else None


def _per_dimension(value: Any, dimensions: int) -> Shape:
    sides = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple(int(side) for side in (sides * dimensions if len(sides) == 1 else sides))


def _array(layer: Any, *names: str) -> Array | None:
    """Return the first array of these names, in capitals too."""
    for name in names:
        for spelt in (name, name.upper()):
            array = array_of(getattr(layer, spelt, None))
            if array is not None:
                return array
    return None


def _attribute(layer: Any, *names: str, default: Any = None) -> Any:
    values = (getattr(layer, name, None) for name in names)
    return next((value for value in values if value is not None), default)


class _Sums(NamedTuple):
    calls: int = 0
    matmul: int = 0
    vector: int = 0
    integer: int = 0
    bytes: int = 0
    estimated: bool = False


class Tally(ArrayObserver):
    """The work of one call on one thread; `familiar` arrays were there before it.

    `unbatched` says that the first layer took one sample without a dimension for the batch.
    """

    def __init__(self, familiar: Callable[[], Iterable[Array]] = tuple) -> None:
        super().__init__(familiar)
        self.thread = threading.get_ident()
        self.unbatched: bool | None = None
        self.suspended = 0
        self._rows: dict[tuple[str, str], _Sums] = {}
        self._unknown: dict[str, int] = {}

    def add(self, operator: str, work: Work | None, dtype: Any, moved: int) -> None:
        """Add a call of an operator, `moved` bytes read and written; `work` None is unknown."""
        if self.suspended:
            return
        if work is None or np.dtype(dtype).kind not in "biufc":
            self.unknown(operator)
            return
        sums = self._rows.get((operator, str(dtype)), _Sums())
        self._rows[operator, str(dtype)] = _Sums(
            sums.calls + 1,
            sums.matmul + work.matmul,
            sums.vector + work.vector,
            sums.integer + work.integer,
            sums.bytes + moved,
            sums.estimated or work.estimated,
        )

    @property
    def counted(self) -> bool:
        """Whether any work was seen."""
        return bool(self._rows)

    def unknown(self, description: str) -> None:
        """Note work that is not known."""
        if not self.suspended:
            self._unknown[description] = self._unknown.get(description, 0) + 1

    def cost(self, name: str, kind: str, parameters: int) -> Cost:
        """Return the sums as a record, of one layer: the whole call."""
        node = CostNode(name=name, path="", kind=kind, parent=-1, calls=1, parameters=parameters)
        rows = [
            CostRow(
                node=0, operator=operator, phase="forward", dtype=dtype, calls=sums.calls,
                matmul_flops=sums.matmul, causal_matmul_flops=sums.matmul,
                vector_flops=sums.vector, integer_ops=sums.integer, bytes=sums.bytes,
                estimated=sums.estimated,
            )
            for (operator, dtype), sums in self._rows.items()
        ]  # fmt: skip
        rows += [
            CostRow(
                node=0,
                operator=description,
                phase="forward",
                dtype="",
                calls=calls,
                has_formula=False,
            )
            for description, calls in self._unknown.items()
        ]
        return Cost(nodes=(node,), rows=tuple(rows), backward=False, counted_on="numpy")


NOT_FOLLOWED = "what the model does with arrays that are observed"


def count(model: Any, inputs: Inputs) -> tuple[Cost, bool]:
    """Return the work of one call, and whether its input is one sample without a batch.

    A known layer is not run: its output is zeros of the shape that it would have. Where the model
    does not take that, layers run and are still counted by shape. Raises as `run`.
    """
    failed: MeasurementError | None = None
    for skip in (True, False):
        try:
            return _count(model, inputs, skip=skip)
        except MeasurementError as error:
            failed = error
    with preserved(model, inputs.args, inputs.kwargs):
        run(model, inputs)  # raises where the model itself is to blame
    tally = Tally()
    tally.unknown(NOT_FOLLOWED if failed is None else f"{NOT_FOLLOWED} ({failed.cause})")
    return _record(tally, model), False


def _count(model: Any, inputs: Inputs, *, skip: bool) -> tuple[Cost, bool]:
    familiar = [array for array in objects(model, functions=True) if isinstance(array, np.ndarray)]
    tally = Tally(lambda: familiar)
    classes = {type(owner) for owner in objects(model, functions=True)}
    rules = {kind: layer_rule for kind in classes if (layer_rule := rule(kind)) is not None}
    with (
        preserved(model, inputs.args, dict(inputs.kwargs)),
        _observed(rules, tally, skip=skip),
        counting(tally),
    ):
        _watch_weights(model)
        # Views of the inputs: the user's own keep their class.
        tracked_inputs = mapped(inputs, lambda array: array.view(Tracked))
        outputs = run(model, tracked_inputs)
        _check_outputs(outputs, tally)
    return _record(tally, model), bool(tally.unbatched)


def _record(tally: Tally, model: Any) -> Cost:
    name = getattr(model, "__name__", type(model).__name__)
    return tally.cost(name, type(model).__name__, members.count(model))


def _watch_weights(model: Any) -> None:
    """Put a tracked view in the place of every array that an object or a container holds."""
    for owner in objects(model):
        if isinstance(owner, tuple | np.ndarray):
            continue
        for name, value in entries(owner):
            if type(value) is np.ndarray:
                _replace(owner, name, value.view(Tracked))


def _replace(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict | list):
        owner[name] = value
    elif name in getattr(owner, "__dict__", {}):
        owner.__dict__[name] = value
    else:
        object.__setattr__(owner, name, value)


def _check_outputs(outputs: Any, tally: Tally) -> None:
    """Note outputs that were not tracked: a plain array, a number, nothing at all.

    Plain integers may come from tracked arrays, as the index of the largest value does.
    """
    leaves = _leaves(outputs)
    plain = "iub" if tally.counted else ""
    if not leaves or not all(
        isinstance(leaf, Tracked) or leaf.dtype.kind in plain for leaf in leaves
    ):
        tally.unknown("what the outputs were made of")


def _leaves(outputs: Any) -> list[Any]:
    single = array_of(outputs)
    if single is not None:
        return [single]
    if isinstance(outputs, np.generic):
        return [outputs]
    values = outputs.values() if isinstance(outputs, dict) else outputs
    if isinstance(values, tuple | list) or isinstance(outputs, dict):
        return [leaf for value in values for leaf in _leaves(value)]
    return []


def _observed(
    rules: dict[type, Rule], tally: Tally, *, skip: bool
) -> contextlib.AbstractContextManager[None]:
    """Have the layers of these classes counted by their rules until a block ends.

    One that holds its weights and cannot be called has a `forward` meanwhile.
    """
    counted: list[tuple[type, str, Any]] = []
    for kind, layer_rule in rules.items():
        weights_alone = all(method_of(kind, name) is None for name in CALLS)
        for name in ("forward",) if weights_alone else ("__call__", "forward"):
            original = _not_callable if weights_alone else method_of(kind, name)
            if isinstance(original, types.FunctionType):
                skips = skip or weights_alone
                counted.append((kind, name, _counted(original, layer_rule, tally, skip=skips)))
    return replaced(counted)


def _not_callable(layer: Any, *_: Any) -> Any:
    raise not_callable(layer)


def _counted(original: Callable[..., Any], layer_rule: Rule, tally: Tally, *, skip: bool) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        operands = [array for value in values if (array := array_of(value)) is not None]
        done = None
        if operands and not tally.suspended and tally.thread == threading.get_ident():
            done = layer_rule(
                Call(self, described(operands[0]), tuple(map(described, operands[1:])))
            )
        if done is None:
            return original(self, *args, **kwargs)
        if tally.unbatched is None:
            tally.unbatched = done.unbatched
        first = next(value for value in values if array_of(value) is not None)
        if skip and done.shape is not None:
            outputs = _zeros(self, first, done.shape)
        else:
            tally.suspended += 1
            try:
                outputs = original(self, *args, **kwargs)
            finally:
                tally.suspended -= 1
            outputs = _tracked(outputs)
        _add(tally, self, done, operands, outputs)
        return outputs

    return call


def _zeros(layer: Any, operand: Any, shape: tuple[int, ...]) -> Any:
    array: Any = array_of(operand)
    dtypes: list[Any] = [array.dtype for _, array in parameters(layer)]
    # Indices become rows of a table, and integers numbers of the weights' type.
    use_weight_dtype = bool(dtypes) and array.dtype.kind in "iub"
    return like(
        operand, np.zeros(shape, np.result_type(*dtypes) if use_weight_dtype else array.dtype)
    )


def _tracked(outputs: Any) -> Any:
    """Return what a layer returned, its arrays tracked again: its work is known."""
    array = array_of(outputs)
    if array is None or isinstance(outputs, np.ndarray):
        return tracked(outputs)
    if not isinstance(array, Tracked):
        outputs.data = array.view(Tracked)
    return outputs


def _add(tally: Tally, layer: Any, done: LayerResult, operands: list[Any], outputs: Any) -> None:
    """Add a layer's call: it reads its inputs and weights, of a table the rows that it returns."""
    output = array_of(outputs)
    written = 0 if output is None else output.nbytes
    read = written if done.gathers else members.size(layer)
    moved = sum(operand.nbytes for operand in operands) + read + written
    tally.add(type(layer).__name__, done.work, operands[0].dtype, moved)
