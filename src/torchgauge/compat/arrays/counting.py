"""Counts the work of one call of a duck-typed model: known layers by shape, others as they run."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from torchgauge.compat.arrays.calling import like, mapped, not_callable, run
from torchgauge.compat.arrays.layer_work import Call, LayerResult, Rule, rule
from torchgauge.compat.arrays.memory import preserved
from torchgauge.errors import MeasurementError
from torchgauge.formulas.operand import Work
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
