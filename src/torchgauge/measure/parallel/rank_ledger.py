"""The dispatch mode that follows one rank: storages alive, operators' work, collectives."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torchgauge import torch_private
from torchgauge.analyze.parallel.rank_lifetimes import Lifetimes, Storage
from torchgauge.formulas.operand import Work, tensors
from torchgauge.formulas.registry import as_work
from torchgauge.formulas.traffic import bytes_of
from torchgauge.measure.parallel import collectives
from torchgauge.measure.parallel.current_layer import CurrentLayer
from torchgauge.measure.parallel.fake_job import replace
from torchgauge.measure.work import internals
from torchgauge.measure.work.operators import Operator, operator
from torchgauge.records.parallel.parallel import CollectiveKind, WorkRow
from torchgauge.records.parallel.rank_memory import Part, StepPhase
from torchgauge.signals import restoring
from torchgauge.version import torch_unsupported

_STREAMS: dict[CollectiveKind, str] = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
}
_PROPAGATION = (
    "_propagate_tensor_meta_non_cached",
    "_propagate_tensor_meta",
    "propagate_op_sharding_non_cached",
    "propagate",
)
_COPIES = "fsdp::"  # operators that move parameters and gradients, without arithmetic
_BETWEEN_STAGES = ("c10d::send", "c10d::recv_")
_NONE: dict[str, Any] = {}


class RankLedger(internals.DispatchMode):
    """Notes what one rank allocates, computes and sends, on fake tensors and on real ones."""

    def __init__(self, groups: collectives.Groups, layer: CurrentLayer, returned: set[int]) -> None:
        super().__init__()
        self.lifetimes = Lifetimes()
        self.collectives = collectives.Collectives(groups)
        self.phase: StepPhase = "forward"
        self.suspended = 0
        self.interleaved = False  # whether passes of several micro-batches take turns
        self._layer = layer
        self._returned = returned
        self._alive: dict[int, _Alive] = {}
        self._work: dict[tuple[str, str, str], list[int]] = {}
        self._operators: dict[Any, Operator] = {}
        self._unwrapped: dict[Any, bool] = {}

    def adopt(self, part: Part, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Note tensors that are there before the step; names are module paths of their owners."""
        for layer, tensor in named:
            storage = _local(tensor).untyped_storage()
            self._note_resting(storage, Storage(part, layer))

    def begin(self, phase: StepPhase) -> None:
        """Note that a phase begins."""
        self.phase = phase
        self.lifetimes.begin_phase(phase)

    def assign(self, part: Part, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Say what storages are that the step has made."""
        for layer, tensor in named:
            alive = self._alive.get(internals.storage_key(_local(tensor)))
            if alive is not None:
                alive.storage.part, alive.storage.layer = part, layer

    def work(self) -> tuple[WorkRow, ...]:
        """Return the work by phase, operator and dtype."""
        return tuple(
            WorkRow(
                phase=phase,  # type: ignore[arg-type]
                operator=name,
                dtype=dtype,
                calls=sums[0],
                matmul_flops=sums[1],
                causal_matmul_flops=sums[2],
                vector_flops=sums[3],
                bytes=sums[4],
                unknown_calls=sums[5],
            )
            for (phase, name, dtype), sums in self._work.items()
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and note what it allocates, computes and sends."""
        if types and self._unwraps(tuple(types)):
            return NotImplemented  # a subclass made of plain tensors: its own operators follow
        kwargs = kwargs or _NONE
        if self.suspended:
            return func(*args, **kwargs)
        overload = self._operators.get(func)
        if overload is None:
            overload = self._operators[func] = operator(func)
        if overload.composite:
            with self:
                return internals.decomposed(func, args, kwargs)
        if self.interleaved:
            self._take_turns()
        namespace = getattr(func, "namespace", "")
        # What a backend itself runs to communicate is another's in a job on GPUs.
        self.suspended += namespace == "c10d"
        try:
            outputs = func(*args, **kwargs)
        finally:
            self.suspended -= namespace == "c10d"
        self._note_storages(overload.name, (*args, *kwargs.values()), outputs)
        if namespace in collectives.NAMESPACES:
            phase = self._phase_of(overload.name, args)
            kind = self.collectives.note(func, args, outputs, phase)
            if namespace == "c10d" and kind is not None:
                self._mark_collective(kind, args)
        elif overload.kind not in ("view", "question"):
            self._note_work(overload, args, kwargs, outputs)
        return outputs

    def _phase_of(self, name: str, args: Any) -> StepPhase:
        """Return the pass that a collective belongs to: stages send gradients between passes."""
        if not self.interleaved or name not in _BETWEEN_STAGES:
            return self.phase
        key = internals.storage_key(next(iter(tensors(args))))
        if key not in self._returned:
            return "forward"
        self._returned.discard(key)  # another storage may get its place
        return "backward"

    def _take_turns(self) -> None:
        phase: StepPhase = "forward" if internals.graph_task() == -1 else "backward"
        if phase != self.phase:
            self.begin(phase)

    def _unwraps(self, types: tuple[Any, ...]) -> bool:
        if types not in self._unwrapped:
            self._unwrapped[types] = any(map(torch_private.is_wrapper_class, types))
        return self._unwrapped[types]

    def _note_storages(self, name: str, args: Any, outputs: Any) -> None:
        for tensor in tensors(args):
            storage = tensor.untyped_storage()
            if _key(storage) not in self._alive:
                # It was there before, and is neither a parameter nor a named buffer.
                self._note_resting(storage, Storage("buffers", self._layer.path))
        in_backward = internals.graph_task() != -1
        # Where it may, the engine adds to the sum that it has; under a mode it may not.
        replaces = in_backward and name == "aten::add" and not torch.is_grad_enabled()
        part: Part = "activations" if self.phase == "forward" else "workspace"
        for tensor in tensors(outputs):
            storage = tensor.untyped_storage()
            if _key(storage) not in self._alive:
                owner = Storage(part, self._layer.path)
                self._follow(storage, owner, storage.nbytes())
                self.lifetimes.change(owner, storage.nbytes(), may_replace=replaces)
        if name.endswith("chunk_cat"):  # gradients of all ranks, copied to be reduced
            self._mark(args[0], "gathered")

    def _note_work(self, overload: Operator, args: Any, kwargs: Any, outputs: Any) -> None:
        first = next(iter(tensors(args)), None)
        if first is None:
            first = next(iter(tensors(outputs)), None)
        dtype = "" if first is None else str(first.dtype).removeprefix("torch.")
        phase: str = self.phase
        if phase == "backward" and internals.graph_task() != -1 and torch.is_grad_enabled():
            phase = "recompute"  # a backward pass itself has gradients off
        sums = self._work.setdefault((phase, overload.name, dtype), [0] * 6)
        sums[0] += 1
        if overload.moves:
            sums[4] += bytes_of(overload.name, args, kwargs, outputs)
        work = _work_of(overload, args, kwargs, outputs)
        if work is None:
            sums[5] += not overload.name.startswith(_COPIES)
            return
        sums[1] += work.matmul
        sums[2] += work.matmul if work.causal is None else work.causal
        sums[3] += work.vector
        if work.matmul:
            self.collectives.products += 1

    def _mark_collective(self, kind: CollectiveKind, args: Any) -> None:
        """Say which tensors of FSDP's are gathered, and on which stream's pool; what DDP reduces.

        Whoever else communicates allocates as it computes.
        """
        if collectives.is_bucket(kind, args[0]):
            self._mark(args[0], "gradients")
        elif kind in _STREAMS and collectives.called_by_fsdp():
            scatters = kind == "reduce_scatter"
            self._mark(args[0], None if scatters else "gathered", _STREAMS[kind])
            if scatters:
                self._mark(args[1], "gathered")

    def _mark(self, value: Any, part: Part | None, stream: str | None = None) -> None:
        for tensor in tensors(value):
            alive = self._alive.get(internals.storage_key(tensor))
            if alive is None or alive.storage.part in ("parameters", "optimizer"):
                continue
            alive.storage.part = part or alive.storage.part
            alive.storage.stream = stream or alive.storage.stream

    def _note_resting(self, storage: torch.UntypedStorage, owner: Storage) -> None:
        if _key(storage) not in self._alive:
            self._follow(storage, owner, storage.nbytes())
            self.lifetimes.resting.append((owner, storage.nbytes()))

    def _follow(self, storage: torch.UntypedStorage, owner: Storage, size: int) -> None:
        key = _key(storage)

        def ended(_: Any) -> None:
            alive = self._alive.pop(key, None)
            if alive is not None:
                self.lifetimes.change(alive.storage, -alive.size)

        alive = _Alive(storage, ended)
        alive.storage, alive.size = owner, size
        self._alive[key] = alive

    def resized(self, storage: torch.UntypedStorage, size: int) -> None:
        """Note that a storage takes or gives up its memory, as FSDP's gathered parameters do."""
        if _key(storage) not in self._alive:
            self._follow(storage, Storage("gathered", self._layer.path), size)
            self.lifetimes.change(self._alive[_key(storage)].storage, size)
            return
        alive = self._alive[_key(storage)]
        if alive.storage.part != "parameters":
            alive.storage.part = "gathered"
        self.lifetimes.change(alive.storage, size - alive.size)
        alive.size = size


class _Alive(weakref.ref):  # type: ignore[type-arg]
    """A storage that is alive, by a reference that does not keep it."""

    storage: Storage
    size: int


@restoring
def noting(ledger: RankLedger) -> Iterator[None]:
    """Note what this thread does until the block ends.

    DTensor finds shardings by running operators on fake tensors of the global size, which no rank
    holds: what it does meanwhile is left out. Raises MeasurementError `torch-unsupported`.
    """
    with contextlib.ExitStack() as undo:
        names = [
            name
            for name in _PROPAGATION
            if hasattr(torch_private.sharding.ShardingPropagator, name)
        ]
        if not names:
            raise torch_unsupported(
                f"torch {torch.__version__} propagates shardings in a way that is not known.",
                "Its tensors of the global size cannot be distinguished from a rank's own.",
            )
        for name in names:
            replace(
                undo, torch_private.sharding.ShardingPropagator, name, _suspending(ledger, name)
            )
        original = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            resized = original(storage, size)
            if not ledger.suspended:
                ledger.resized(storage, int(size))
            return resized

        replace(undo, torch.UntypedStorage, "resize_", resize)
        with ledger:
            yield


def _suspending(ledger: RankLedger, name: str) -> Any:
    original = getattr(torch_private.sharding.ShardingPropagator, name)

    def suspended(*args: Any, **kwargs: Any) -> Any:
        ledger.suspended += 1
        try:
            return original(*args, **kwargs)
        finally:
            ledger.suspended -= 1

    return suspended


def _key(storage: torch.UntypedStorage) -> int:
    """Return what identifies a storage while it lives, as `storage_key` does."""
    return int(storage._cdata)  # noqa: SLF001 - fake storages have no address


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the rank's own tensor of a DTensor."""
    return getattr(tensor, "_local_tensor", tensor)


def _work_of(overload: Operator, args: Any, kwargs: Any, outputs: Any) -> Work | None:
    if overload.work is None:
        return None
    try:
        work = overload.work(args, kwargs, outputs)
    except Exception:  # noqa: BLE001 - a formula may be the user's: its work is unknown then
        return None
    return work if work is None or type(work) is Work else as_work(work)


internals.never_compiled(RankLedger.__torch_dispatch__, below=True)
