"""Measure how a language model generates: the grid of its cells, and what one forward of it does.

Calls come first, with nothing but a watch attached; work is counted after them, memory and trees
come late, and the machine's roofs before the trees, which are held to them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.generation.bounds import bounded
from torchgauge.analyze.generation.cells import cell as cell_of_calls
from torchgauge.analyze.generation.fits import fits
from torchgauge.analyze.generation.largest_batch import largest_batch
from torchgauge.analyze.generation.predictions import predict
from torchgauge.device.counters import memory_total
from torchgauge.device.environment import environment
from torchgauge.device.roofs import roofs as machine
from torchgauge.device.select import open_device
from torchgauge.measure.description import describe
from torchgauge.measure.effort import effort_named
from torchgauge.measure.forward import opened
from torchgauge.measure.generation.cell_stages import CellStages
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.generator import generator
from torchgauge.measure.generation.grid import WARMUP, CellRun, Grid
from torchgauge.measure.generation.prompts import Prompts
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.runner import Runner
from torchgauge.measure.step import without_values
from torchgauge.measure.work import roofs as roofs_probe
from torchgauge.measure.work import size as size_probe
from torchgauge.progress import Progress
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell, StageWork
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets.builds.source import Source
from torchgauge.targets.placement import Placement
from torchgauge.targets.target import TargetRequest


def measure(
    source: Source,
    options: GenerationOptions,
    progress: Progress,
    *,
    assistant: Source | None = None,
) -> Generation:
    """Measure every cell of the grid, then work, memory and trees of single forwards.

    Raises what loading raises, InputError `no-generation`, MeasurementError `meta-model`. What a
    cell raises is its status and reason; Ctrl-C after loading returns what was measured.
    """
    with Interrupts() as interrupts:
        runner = Runner(progress, interrupts, keep_going=True)
        with interrupts.allowed():
            progress.start("loading")
            placement = opened(source)
            draft = None if assistant is None else opened(assistant)
        return _Measurement(placement, draft, _given(source), options, runner).generation()


class _Measurement:
    """One measurement: its grid, and the parts of its record so far."""

    def __init__(
        self,
        placement: Placement,
        draft: Placement | None,
        given: bool,
        options: GenerationOptions,
        runner: Runner,
    ) -> None:
        if not placement.computes:
            raise without_values()
        self._placement, self._draft = placement, draft
        self._options, self._runner = options, runner
        self._effort = effort_named(options.effort)
        assistant = None if draft is None else draft.model
        prompts = Prompts.of(placement, given=given)
        self._grid = Grid(
            prompts, generator(placement.model, assistant, options), options, assistant
        )
        self._stages: dict[int, CellStages] = {}

    def generation(self) -> Generation:
        """Run the probes in their order, and return the record."""
        runner, placement = self._runner, self._placement
        runner.progress.expect(3 + self._options.trees + self._options.roofs)
        size = runner.attempt("size", lambda: size_probe.measure(placement.model), tells=False)
        runner.attempt("generation", lambda: self._grid.run(runner.progress), tells=False)
        cells = [self._cell(run) for run in self._grid.cells]
        roofs = self._roofs()
        cells = self._with_work(cells, roofs)
        generation = Generation(
            target=describe(placement, training=False),
            environment=environment(),
            assistant=None if self._draft is None else describe(self._draft, training=False),
            size=size,
            cells=tuple(cells),
            fits=fits(cells),
            trees=self._trees(cells, roofs),
            roofs=roofs,
            largest_batch=largest_batch(cells, _capacity(placement.device)),
            interrupted=runner.interrupted or runner.interrupts.noted,
            warnings=(*runner.warnings, *self._warnings()),
        )
        generation = replace(generation, predictions=self._predictions(generation))
        return replace(generation, findings=findings(generation))
