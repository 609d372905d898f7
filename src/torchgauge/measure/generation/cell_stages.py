"""Single forwards of a cell, run again: their work, their memory, their trees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from torchgauge.device.environment import environment
from torchgauge.errors import MeasurementError
from torchgauge.measure.derived import judged
from torchgauge.measure.effort import Effort
from torchgauge.measure.forward import running
from torchgauge.measure.generation.grid import SUBJECT, CellRun, Grid
from torchgauge.measure.generation.stage_work import CountedForward, counted, stage_work
from torchgauge.measure.generation.watched_modules import (
    CapturedForward,
    CapturedStages,
    captured_stages,
    whole_prefill,
)
from torchgauge.measure.memory import memory as memory_probe
from torchgauge.measure.timeline import timeline as timeline_probe
from torchgauge.records.generation.cell import StageWork
from torchgauge.records.generation.generation import StageTree
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.content import with_inputs
from torchgauge.targets.placement import Placement


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
