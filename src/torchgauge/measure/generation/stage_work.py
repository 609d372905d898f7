"""Single forwards of a cell, run again: their work by operations and bytes, memory, trees.

The operators are those that `tg.count_cost` counts. Each operand is held to the memory that it is
in: parameters are weights, the tensors of the cache after the forward are the cache.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from torchgauge.device.environment import environment
from torchgauge.errors import MeasurementError
from torchgauge.formulas.operand import tensors as tensors_among
from torchgauge.formulas.operand import touched
from torchgauge.formulas.traffic import bytes_of
from torchgauge.measure.derived import judged
from torchgauge.measure.effort import Effort
from torchgauge.measure.forward import running
from torchgauge.measure.generation.grid import SUBJECT, CellRun, Grid
from torchgauge.measure.generation.watched_modules import (
    CapturedForward,
    CapturedStages,
    cache_in,
    captured_stages,
    whole_prefill,
)
from torchgauge.measure.memory import memory as memory_probe
from torchgauge.measure.timeline import timeline as timeline_probe
from torchgauge.measure.work import cost as cost_probe
from torchgauge.measure.work.counting import Counter
from torchgauge.measure.work.internals import storage_key
from torchgauge.measure.work.operators import Operator
from torchgauge.records.generation.cell import StageWork
from torchgauge.records.generation.generation import StageTree
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.cost import Cost, known_part
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets import members
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.content import with_inputs
from torchgauge.targets.placement import Placement

# Operators that read the rows of their first operand which another one names.
_TABLES = frozenset({"aten::embedding"})
_ROWS = {"aten::index": 1, "aten::index_select": 2, "aten::_unsafe_index": 1}
_GROUPED = "grouped_mm"
_EXPERTS = "experts"


class CountedForward(NamedTuple):
    """A forward's cost, and its bytes by what they are of."""

    cost: Cost
    weights: int
    cache: int
    activations: int
    experts: float | None


def counted(placement: Placement, forward: CapturedForward) -> CountedForward:
    """Run the forward once more, and count it. Raises as `cost.measure`."""
    traffic = _Traffic(forward)

    def counter(*arguments: Any) -> Counter:
        return _StageCounter(traffic, *arguments)

    hook = forward.module.register_forward_hook(traffic.note_cache, with_kwargs=True)
    try:
        with placement.arithmetic(), torch.inference_mode(mode=False), torch.no_grad():
            cost = cost_probe.measure(
                forward.module, forward.inputs, device=placement.device, make_counter=counter
            )
    finally:
        hook.remove()
    weights, cache = traffic.weight_bytes(), traffic.cache_bytes
    activations = max(0, traffic.remaining - cache)
    return CountedForward(cost, weights, cache, activations, traffic.experts())


def stage_work(
    stage: Literal["prefill", "decode"], cached: int, forwards: Iterable[CountedForward]
) -> StageWork:
    """Return the work of a stage of one or more forwards."""
    forwards = list(forwards)
    totals = [forward.cost.total() for forward in forwards]
    at_least = any(total.at_least for total in totals)
    experts = [forward.experts for forward in forwards if forward.experts is not None]
    return StageWork(
        stage=stage,
        cached=cached,
        flops=known_part(sum(total.flops for total in totals), at_least=at_least),
        matmul_flops=known_part(sum(total.matmul_flops for total in totals), at_least=at_least),
        weight_bytes=sum(forward.weights for forward in forwards),
        cache_bytes=sum(forward.cache for forward in forwards),
        activation_bytes=sum(forward.activations for forward in forwards),
        at_least=at_least,
        experts=statistics.fmean(experts) if experts else None,
    )


class _StageCounter(Counter):
    """Counts as ever, and passes on what each operator touches."""

    def __init__(self, traffic: _Traffic, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._traffic = traffic

    def add(self, overload: Operator, args: Any, kwargs: Any, outputs: Any) -> None:
        """Count one call that has run."""
        super().add(overload, args, kwargs, outputs)
        self._traffic.note(overload, args, kwargs, outputs)


@dataclasses.dataclass
class _Storage:
    """What a forward did with a piece of memory that may be the cache's.

    `read` is the largest part of it that an operator read, `written` its new content; bytes.
    """

    read: int = 0
    written: int = 0


class _Traffic:
    """Adds up bytes by the memory that they are in."""

    def __init__(self, forward: CapturedForward) -> None:
        self.remaining = 0
        self.cache_bytes = 0
        self._weights = {storage_key(p): p for p in members.parameters(forward.module)}
        self._read: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        self._storages: defaultdict[int, _Storage] = defaultdict(_Storage)
        self._old_cache = _keys(forward.cache)
        self._module = forward.module

    def note(self, overload: Operator, args: Any, kwargs: Any, outputs: Any) -> None:
        """Assign the bytes of one operator call."""
        operands = [*tensors_among(list(args)), *tensors_among(list(kwargs.values()))]
        keys = {_key(operand) for operand in operands}
        results = list(tensors_among(outputs))
        new = [result for result in results if _key(result) not in keys]
        for result in new:  # freed memory may have had this key before
            self._storages.pop(_key(result), None)
        if not overload.moves:
            return
        weights = sum(
            self._weight(overload.name, args, kwargs, operand)
            for operand in operands
            if _key(operand) in self._weights
        )
        self.remaining += max(0, bytes_of(overload.name, args, kwargs, outputs) - weights)
        self._note_memory(operands, results, new)

    def _note_memory(
        self, operands: list[torch.Tensor], results: list[torch.Tensor], new: list[torch.Tensor]
    ) -> None:
        copied = sum(touched(operand) for operand in operands if _key(operand) in self._old_cache)
        for result in new:
            self._storages[_key(result)].written += max(0, touched(result) - copied)
        written_keys = {_key(result) for result in results}
        sources = [operand for operand in operands if _key(operand) not in written_keys]
        for operand in operands:
            storage = self._storages[_key(operand)]
            if _key(operand) not in written_keys:
                storage.read = max(storage.read, touched(operand))
            elif sources:  # written in place: as much as there is to write
                floating = [s for s in sources if s.dtype == operand.dtype]
                storage.written += min(touched(operand), sum(map(touched, floating)))
            else:
                storage.written += touched(operand)

    def _weight(self, name: str, args: Any, kwargs: Any, operand: torch.Tensor) -> int:
        """Note which part of a parameter was read; return the bytes that were counted for it."""
        key, size = _key(operand), touched(operand)
        if name in _TABLES:
            return 0
        if name in _ROWS and operand is args[0]:
            rows = _rows(operand, args[_ROWS[name]])
            self._read[key].update(rows)
            return sum(length for _, length in rows)
        offsets = _offsets(args, kwargs) if _GROUPED in name and operand.dim() == 3 else None
        if offsets is not None:
            counts = torch.diff(offsets, prepend=offsets.new_zeros(1)).tolist()
            self._read[key].update(_parts(operand, [i for i, n in enumerate(counts) if n > 0]))
        elif size:
            start = int(operand.storage_offset()) * operand.itemsize
            self._read[key].add((start, size))
        return size

    def note_cache(self, _module: nn.Module, _args: Any, kwargs: Any, outputs: Any) -> None:
        """Read what the cache is after the forward, before anything is put back."""
        caches = [cache_in(kwargs)]
        if isinstance(outputs, dict):
            caches.append(cache_in(outputs))
        elif isinstance(outputs, tuple) and len(outputs) > 1:
            caches.append(outputs[1])
        keys = set[int]().union(*map(_keys, caches))
        memory = [self._storages[key] for key in keys if key in self._storages]
        self.cache_bytes = sum(storage.read + storage.written for storage in memory)

    def weight_bytes(self) -> int:
        """Return the bytes of parameters that were read, each byte once."""
        return sum(map(_covered, self._read.values()))

    def experts(self) -> float | None:
        """Return how many experts of a layer were read on average; None without experts."""
        used = list(self._used_experts())
        return statistics.fmean(used) if used else None

    def _used_experts(self) -> Iterator[int]:
        for name, module in self._module.named_modules():
            if name.rpartition(".")[2] != _EXPERTS:
                continue
            own = [p for p in vars(module)["_parameters"].values() if p is not None]
            stacked = [p for p in own if p.dim() == 3]
            if stacked:
                size = stacked[0][0].nbytes
                starts = [start // size for start, _ in self._read[_key(stacked[0])]]
                yield len(set(starts))
            elif isinstance(module, nn.ModuleList) and len(module) > 1:
                yield sum(
                    any(self._read.get(_key(p)) for p in expert.parameters()) for expert in module
                )


def _keys(value: Any) -> set[int]:
    return {_key(tensor) for tensor in tensors_in(value) if tensor.numel()}


def _key(tensor: torch.Tensor) -> int:
    try:
        return storage_key(tensor)
    except (RuntimeError, NotImplementedError):  # sparse: no single storage
        return -id(tensor)


def _rows(table: torch.Tensor, index: Any) -> set[tuple[int, int]]:
    if isinstance(index, list | tuple):
        index = index[0]
    if index is None or index.dtype == torch.bool:
        return {(int(table.storage_offset()) * table.itemsize, touched(table))}
    return _parts(table, index.unique().tolist())


def _parts(stacked: torch.Tensor, indices: Iterable[int]) -> set[tuple[int, int]]:
    """Return begin and length in bytes of some entries along the first dimension."""
    length = touched(stacked[0])
    begin, step = int(stacked.storage_offset()), stacked.stride(0)
    return {((begin + index * step) * stacked.itemsize, length) for index in indices}


def _offsets(args: Any, kwargs: Any) -> torch.Tensor | None:
    values = [*args[2:3], kwargs.get("offs")]
    return next((value for value in values if isinstance(value, torch.Tensor)), None)


def _covered(parts: Iterable[tuple[int, int]]) -> int:
    """Return the bytes in the union of (begin, length)."""
    total = end = 0
    for start, length in sorted(parts):
        total += max(0, start + length - max(start, end))
        end = max(end, start + length)
    return total


class CellStages:
    """The forwards of one cell, captured in a generation of their own."""

    def __init__(self, placement: Placement, grid: Grid, cell: CellRun) -> None:
        module = module_of(placement.model)
        call = next((call for call in reversed(cell.calls) if not call.error), None)
        if module is None or call is None:
            raise MeasurementError(f"{cell.label} was not measured.", id="cell-missing")
        self._placement, self._call = placement, call
        with grid.hygiene(), running(placement.device, SUBJECT):
            generate = grid.ready(cell)
            self._stages: CapturedStages = captured_stages(module, generate, call)

    def work(self) -> tuple[StageWork, ...]:
        """Count the prefill, the first and the last decode step."""
        stages = self._stages
        works = [stage_work("prefill", self._cached(stages.prefill), self._counted(stages.prefill))]
        steps = [step for step in (stages.first, stages.last) if step is not None]
        if len(steps) == 2 and steps[0].cached == steps[1].cached:
            steps = steps[1:]
        works += [stage_work("decode", step.cached, self._counted([step])) for step in steps]
        return tuple(works)

    def memory(self) -> Memory | None:
        """Measure the memory of the last decode step, or of the prefill where there is none."""
        forward = self._stages.last or whole_prefill(self._stages.prefill)
        return None if forward is None else memory_probe.measure(self._placed(forward))

    def tree(
        self, stage: Literal["prefill", "decode"], cell: int, effort: Effort, roofs: Roofs | None
    ) -> StageTree | None:
        """Record a whole prefill or the last decode step by layer and operator."""
        forward = self._stages.last
        if stage == "prefill":
            forward = whole_prefill(self._stages.prefill)
        if forward is None:
            return None
        tree = timeline_probe.measure(self._placed(forward), effort=effort)
        cost = counted(self._placement, forward).cost
        tree = judged(tree, cost, None, roofs, environment())
        return StageTree(stage=stage, cell=cell, cached=forward.cached, tree=tree, cost=cost)

    def _counted(self, forwards: Sequence[CapturedForward]) -> list[CountedForward]:
        return [counted(self._placement, forward) for forward in forwards]

    def _placed(self, forward: CapturedForward) -> Placement:
        """Return the placement with a forward's arguments as its inputs."""
        target = with_inputs(self._placement.target, forward.inputs)
        target = dataclasses.replace(target, model=forward.module)
        return dataclasses.replace(
            self._placement, target=target, model=forward.module, inputs=forward.inputs
        )

    @staticmethod
    def _cached(forwards: Sequence[CapturedForward]) -> int:
        return forwards[0].cached if forwards else 0
