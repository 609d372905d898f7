"""Collectives as operators: their kind, group and bytes, and whether other work can hide them."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed as dist

from torchgauge import torch_private
from torchgauge.formulas.operand import tensors
from torchgauge.measure.work.internals import graph_task, storage_key
from torchgauge.records.parallel.parallel import CollectiveKind, CollectiveRow, Exposure
from torchgauge.records.parallel.rank_memory import StepPhase

NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
# In the order in which names are searched: "reduce_scatter" before "scatter".
_KINDS: tuple[tuple[str, CollectiveKind], ...] = (
    ("reduce_scatter", "reduce_scatter"),
    ("all_gather", "all_gather"),
    ("allgather", "all_gather"),
    ("all_reduce", "all_reduce"),
    ("allreduce", "all_reduce"),
    ("all_to_all", "all_to_all"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("send", "send"),
    ("recv", "recv"),
)
_resolved: Any = torch_private.process_group
_WITHOUT_BYTES = ("wait_tensor", "barrier", "_wrap_tensor")
_FSDP = "distributed/fsdp"
# Operators of c10d whose input is their second argument.
_OUTPUT_FIRST = frozenset({"reduce_scatter", "all_to_all"})


class Groups:
    """The groups of ranks by the dimensions of the mesh that they extend along."""

    def __init__(self, groups: Mapping[str, tuple[int, ...]]) -> None:
        self._names = {frozenset(ranks): name for name, ranks in groups.items()}
        self._by_name: dict[str, tuple[str, int]] = {}

    def dims_and_size(self, group: Any) -> tuple[str, int]:
        """Return the dimensions of a process group ("" where it is none of the mesh), its size."""
        key = group.group_name
        if key not in self._by_name:
            ranks = dist.get_process_group_ranks(group)
            self._by_name[key] = (self._names.get(frozenset(ranks), ""), len(ranks))
        return self._by_name[key]


@dataclasses.dataclass
class _Call:
    kind: CollectiveKind
    group: str
    ranks: int
    phase: StepPhase
    dtype: str
    bytes: int
    products_before: int
    by_framework: bool
    exposure: Exposure | None = None


class Collectives:
    """The collectives of a step, in order; `products` counts the products between them."""

    def __init__(self, groups: Groups) -> None:
        self.products = 0
        self._groups = groups
        self._calls: list[_Call] = []
        self._pending: dict[int, _Call] = {}

    def note(self, func: Any, args: Any, outputs: Any, phase: StepPhase) -> CollectiveKind | None:
        """Note a call of an operator of `NAMESPACES`; return its kind, None of a wait."""
        name = func._schema.name.partition("::")[2]  # noqa: SLF001 - the operator's public identity
        if name == "wait_tensor":
            self._waited(args[0])
        if name.startswith(_WITHOUT_BYTES):
            return None
        kind: CollectiveKind = next((kind for part, kind in _KINDS if part in name), "other")
        functional = func.namespace != "c10d"
        payload = _payload(kind, args, outputs, functional=functional)
        process_group = _group(args)
        group, ranks = self._groups.dims_and_size(process_group)
        if kind == "all_to_all" and functional and _is_sent_on(args, process_group):
            kind = "send"
        first = next(iter(tensors(payload)), None)
        call = _Call(
            kind=kind,
            group=group,
            ranks=ranks,
            phase=phase,
            dtype="" if first is None else str(first.dtype).removeprefix("torch."),
            bytes=sum(tensor.nbytes for tensor in tensors(payload)),
            products_before=self.products,
            by_framework=not functional and (is_bucket(kind, payload) or called_by_fsdp()),
        )
        self._calls.append(call)
        if functional:
            self._pending.update((storage_key(tensor), call) for tensor in tensors(outputs))
        return kind

    def rows(self) -> tuple[CollectiveRow, ...]:
        """Return the collectives by kind, group, phase, dtype and exposure."""
        counts: Counter[tuple[Any, ...]] = Counter()
        sizes: Counter[tuple[Any, ...]] = Counter()
        for call in self._calls:
            exposure = call.exposure or self._exposure(call)
            key = (call.kind, call.group, call.ranks, call.phase, call.dtype, exposure)
            counts[key] += 1
            sizes[key] += call.bytes
        return tuple(
            CollectiveRow(
                kind=key[0],
                group=key[1],
                ranks=key[2],
                phase=key[3],
                dtype=key[4],
                exposure=key[5],
                calls=count,
                bytes=sizes[key],
            )
            for key, count in counts.items()
        )

    def _waited(self, tensor: torch.Tensor) -> None:
        call = self._pending.pop(storage_key(tensor), None)
        if call is not None:
            hidden = self.products > call.products_before
            call.exposure = "overlappable" if hidden else "exposed"

    def _exposure(self, call: _Call) -> Exposure:
        """Return what can hide a collective: a gather what precedes it, a reduction what follows.

        FSDP starts gathers ahead on a stream of their own and waits for reductions at the end of
        the backward pass, as DDP does. Whoever else calls a collective waits for it.
        """
        if not call.by_framework:
            return "exposed"
        is_gather = call.kind in ("all_gather", "broadcast")
        hidden = call.products_before > 0 if is_gather else call.products_before < self.products
        return "overlappable" if hidden else "exposed"


def _payload(kind: str, args: Any, outputs: Any, *, functional: bool) -> Any:
    """Return the whole tensors of a collective: a gather's output, a reduction's input."""
    if kind == "all_gather":
        return outputs if functional else args[0]
    return args[1] if not functional and kind in _OUTPUT_FIRST else args[0]


def _is_sent_on(args: Any, group: Any) -> bool:
    """Whether all goes to one other rank, as `permute_tensor` has it: (input, outputs, inputs)."""
    sizes = args[2] if len(args) > 2 and isinstance(args[2], list | tuple) else ()
    receivers = [rank for rank, size in enumerate(sizes) if size]
    return len(receivers) == 1 and receivers[0] != dist.get_rank(group)


def _group(args: Any) -> Any:
    for argument in reversed(args):
        if isinstance(argument, str):
            try:
                return _resolved(argument)
            except (LookupError, RuntimeError, ValueError):
                continue  # "sum" is an operation
        if isinstance(argument, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(argument)
            except RuntimeError:
                continue  # an operation is an object too
    return dist.group.WORLD


def is_bucket(kind: CollectiveKind, payload: Any) -> bool:
    """Whether gradients are reduced in the backward pass as DDP does it: flat, several in one."""
    in_backward = kind == "all_reduce" and graph_task() != -1
    return in_backward and all(tensor.dim() == 1 for tensor in tensors(payload))


def called_by_fsdp() -> bool:
    """Whether FSDP calls, which allocates on streams of its own and overlaps what it sends."""
    frame = sys._getframe()  # noqa: SLF001 - a few calls of a step
    while frame.f_back is not None:
        if _FSDP in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
