"""The dispatch mode that counts: every operator call that reaches a kernel, in its layer call."""

from __future__ import annotations

import contextlib
import functools
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from torchgauge import torch_private
from torchgauge.errors import TorchgaugeError
from torchgauge.formulas.operand import FREE, Work
from torchgauge.formulas.registry import as_work
from torchgauge.formulas.traffic import bytes_of
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.work import internals
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.measure.work.layer_calls import LayerCall, LayerCalls, OwnNodes
from torchgauge.measure.work.not_called import ParametersRead
from torchgauge.measure.work.operators import Operator, called, operator
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import CostRow, Phase
from torchgauge.signals import replaced, restoring
from torchgauge.targets.hygiene.functions import ORIGINAL

_WITH_WORK_OF_THEIR_OWN = ("flex_attention", "flex_attention_backward")
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})

# Sums of one row: calls, matmul, causal, vector, integer, bytes, known, estimated.
_EMPTY = (0, 0, 0, 0, 0, 0, 1, 0)
_NONE: dict[str, Any] = {}
_IS_CAUSAL = 5  # its place among the arguments


class Counter:
    """Adds up operator calls by layer call, phase, operator and element type, on own `threads`."""

    def __init__(
        self,
        model: Callable[..., Any],
        parameters: ParametersRead,
        threads: OwnThreads,
        kernels: CudaKernels,
    ) -> None:
        self.parameters = parameters
        self.threads = threads
        self.kernels = kernels
        self.calls = LayerCalls(model, self._on_thread)
        self.attention = CausalAttention()
        self.warnings: dict[str, MeasurementWarning] = {}
        self._operators: dict[int, Operator] = {}
        self._functions: list[Any] = []

    @restoring
    def counting(self, *, counts: bool = True) -> Iterator[None]:
        """Count what this thread does until the block ends; without `counts` it runs alike."""
        with Mode(self, counts=counts):
            yield

    def rows(self, order: dict[LayerCall, int]) -> tuple[CostRow, ...]:
        """Return what was counted; `order` numbers the layer calls."""
        return tuple(
            CostRow(
                node=number,
                operator=name,
                phase=phase,
                dtype=str(dtype).removeprefix("torch."),
                calls=sums[0],
                matmul_flops=sums[1],
                causal_matmul_flops=sums[2],
                vector_flops=sums[3],
                integer_ops=sums[4],
                bytes=sums[5],
                has_formula=bool(sums[6]),
                estimated=bool(sums[7]),
            )
            for call, number in order.items()
            for (name, phase, dtype), sums in call.rows.items()
        )

    def operator(self, function: Any) -> Operator:
        """Return the operator's classification, looked up once."""
        overload = self._operators.get(id(function))
        if overload is None:
            overload = self._operators[id(function)] = operator(function)
            self._functions.append(function)  # its address must not be given to another
        return overload

    def add(self, overload: Operator, args: Any, kwargs: Any, outputs: Any) -> None:
        """Count one call that has run."""
        self.parameters.note(args)
        if kwargs:
            self.parameters.note(kwargs.values())
        call, phase = self.place()
        try:
            dtype = args[0].dtype
        except (IndexError, AttributeError):
            dtype = _dtype(args, outputs)
        moved = bytes_of(overload.name, args, kwargs, outputs) if overload.moves else 0
        still = overload.kind in ("view", "free")
        work = FREE if still else self._work(overload, args, kwargs, outputs)
        self.add_work(call, (overload.name, phase, dtype), work, moved)

    def add_work(self, call: LayerCall, key: Any, work: Work | None, moved: int) -> None:
        """Add one call of an operator, by its (name, phase, dtype); `work` None is unknown."""
        sums = call.rows.get(key)
        if sums is None:
            sums = call.rows[key] = list(_EMPTY)
        sums[0] += 1
        sums[5] += moved
        if work is None:
            sums[6] = 0
            return
        matmul, vector, integer, causal, estimated = work
        if matmul:
            if causal is None:
                backward = key[1] == "backward"
                queries = self.attention.node_queries() if backward else self.attention.queries
                causal = matmul if queries is None else triangle(matmul, queries)
            sums[1] += matmul
            sums[2] += causal
        sums[3] += vector
        sums[4] += integer
        sums[7] |= estimated

    def _work(self, overload: Operator, args: Any, kwargs: Any, outputs: Any) -> Work | None:
        if overload.work is None:
            return None
        try:
            result = overload.work(args, kwargs, outputs)
            if result is None or type(result) is Work:
                return result
            return as_work(result)
        except TorchgaugeError as error:
            self._failed(overload.name, error.message)
        except Exception as error:  # noqa: BLE001 - a formula may be the user's: unknown, never a crash
            self._failed(overload.name, f"{type(error).__name__}: {error}")
        return None

    def _failed(self, name: str, cause: str) -> None:
        self.warnings.setdefault(
            name,
            MeasurementWarning(
                id="formula-failed",
                message=f"The formula of {name} failed; its work is unknown.",
                probe="cost",
                cause=cause,
            ),
        )

    def place(self) -> tuple[LayerCall, Phase]:
        """Return the layer call and the phase of what this thread does now."""
        if internals.graph_task() == -1:
            return self.calls.current(), "forward"
        if internals.in_checkpoint():
            return self.calls.recomputing(), "recompute"
        return self.calls.node_owner(), "backward"

    def counts_here(self) -> bool:
        """Return whether what this thread does now is counted: not inside of an operator."""
        return any(isinstance(mode, Mode) and mode.counter is self for mode in internals.modes())

    def _on_thread(self) -> Callable[[], None] | None:
        if self.counts_here():  # the autograd engine carries the modes of the thread that called it
            return lambda: None
        if not self.threads.owns_current():
            return None
        undo = contextlib.ExitStack()
        if torch.is_grad_enabled():
            undo.enter_context(OwnNodes(self.calls.current))
            self.calls.several_threads = True
        undo.enter_context(self.counting())
        return undo.close


class Mode(internals.DispatchMode):
    """Sees every operator below autograd on its thread; composites that arrive whole are split."""

    def __init__(self, counter: Counter, *, counts: bool = True) -> None:
        super().__init__()
        self.counter = counter
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count it."""
        kwargs = kwargs or _NONE
        overload = self.counter.operator(func)
        if types and not _PLAIN.issuperset(types) and _unwraps(types):
            return NotImplemented  # a subclass that is made of plain tensors: count what it calls
        if overload.composite and not _nested(args):
            with self:
                return self.counter.kernels.call(func, *args, **kwargs)
        if overload.kind == "higher" and any(map(callable, args)):
            return self._higher_order(func, args, kwargs)
        outputs = called(func, args, kwargs)
        if self.counts and overload.kind != "question":
            self.counter.add(overload, args, kwargs, outputs)
        return outputs

    def _higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that takes functions, and count what they do."""
        if func.name().startswith(_WITH_WORK_OF_THEIR_OWN):
            with self:
                return internals.decomposed(func, args, kwargs)

        def counted(function: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

            return call

        # Most refuse to run where a mode is on.
        return func(
            *(counted(argument) if callable(argument) else argument for argument in args), **kwargs
        )


internals.never_compiled(Mode.__torch_dispatch__, below=True)


def _nested(args: Any) -> bool:
    """Whether a nested tensor is among them: its own kernel stands above the composite one."""
    return any(isinstance(argument, torch.Tensor) and argument.is_nested for argument in args)


def _unwraps(types: Any) -> bool:
    return any(
        kind.__torch_dispatch__ is not internals.DISABLED_DISPATCH
        for kind in types
        if kind not in _PLAIN and not issubclass(kind, torch_private.FakeTensor)
    )


def _dtype(args: Any, outputs: Any) -> Any:
    for group in (args, outputs):
        for value in group if isinstance(group, tuple | list) else (group,):
            first = value[0] if isinstance(value, tuple | list) and value else value
            if isinstance(first, torch.Tensor):
                return first.dtype
    return ""


class CausalAttention(threading.local):
    """Remembers, while attention that says `is_causal` runs, how many queries it has.

    `queries` is None outside of it, and where there are not as many keys: the triangle is not
    defined then. Autograd nodes made meanwhile are known by their sequence numbers. Each thread has
    its own.
    """

    def __init__(self) -> None:
        self.queries: int | None = None
        self._starts: list[int] = []
        self._calls: list[tuple[int, int]] = []  # the end of each call's nodes, and its queries

    @restoring
    def watched(self) -> Iterator[None]:
        """Wrap `torch.nn.functional.scaled_dot_product_attention` until the block ends.

        A torch function mode would see the calls by other names too, and would turn off the fast
        paths of nn.MultiheadAttention and nn.TransformerEncoder.
        """
        original = functional.scaled_dot_product_attention

        @functools.wraps(original)
        def attention(*args: Any, **kwargs: Any) -> Any:
            queries = _queries(args, kwargs)
            if queries is None:
                return original(*args, **kwargs)
            self.queries, start = queries, internals.sequence_number()
            try:
                return original(*args, **kwargs)
            finally:
                self._starts.append(start)
                self._calls.append((internals.sequence_number(), queries))
                self.queries = None

        setattr(attention, ORIGINAL, original)
        with replaced([(functional, original.__name__, attention)]):
            yield

    def node_queries(self) -> int | None:
        """Return the queries of the causal attention whose backward is running; None for others."""
        if not self._starts:
            return None
        number = internals.node_number(internals.current_node())
        index = -1 if number is None else bisect_right(self._starts, number) - 1
        if number is None or index < 0:
            return None
        end, queries = self._calls[index]
        return queries if number < end else None


def _queries(args: Any, kwargs: Any) -> int | None:
    causal = args[_IS_CAUSAL] if len(args) > _IS_CAUSAL else kwargs.get("is_causal", False)
    if not causal:
        return None
    query = args[0] if args else kwargs["query"]
    key = args[1] if len(args) > 1 else kwargs["key"]
    if query.is_nested or query.shape[-2] != key.shape[-2]:
        return None
    return int(query.shape[-2])


def triangle(flops: int, queries: int) -> int:
    """Return the part of products over queries · queries pairs that is on or below the diagonal."""
    return flops * (queries + 1) // (2 * queries) if queries else 0
