"""Measure how a language model generates: the grid of its cells, and what one forward of it does.

Calls come first, with nothing but a watch attached; work is counted after them, memory and trees
come late, and the machine's roofs before the trees, which are held to them.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from msgspec.structs import replace

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.generation.cells import bounded, largest_batch
from torchgauge.analyze.generation.cells import cell as cell_of_calls
from torchgauge.analyze.generation.fits import fits
from torchgauge.analyze.generation.predictions import predict
from torchgauge.device.counters import memory_total
from torchgauge.device.environment import environment
from torchgauge.device.roofs import roofs as machine
from torchgauge.measure.description import describe
from torchgauge.measure.effort import effort_named
from torchgauge.measure.forward import opened
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.generator import generator
from torchgauge.measure.generation.grid import WARMUP, CellRun, Grid
from torchgauge.measure.generation.prompts import Prompts
from torchgauge.measure.generation.stage_work import CellStages
from torchgauge.measure.generation.watch import timer_cost
from torchgauge.measure.generation.watched_modules import without_wrapper
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.latency.step_times import load_warnings
from torchgauge.measure.runner import Runner
from torchgauge.measure.step import without_values
from torchgauge.measure.work import roofs as roofs_probe
from torchgauge.measure.work import size as size_probe
from torchgauge.measure.work.energy import of_calls
from torchgauge.progress import Progress
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell, GenerationPrediction, StageWork
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.energy import Energy
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets import members
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement
from torchgauge.targets.target import TargetRequest

# Steps whose median is held to the work of the step in the midst of them: one alone is noise.
NEIGHBOURS = 8


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
            placement = dataclasses.replace(placement, model=without_wrapper(placement.model))
            draft = None if assistant is None else opened(assistant)
        return _Measurement(placement, draft, _has_inputs(source), options, runner).generation()


class _Measurement:
    """One measurement: its grid, and the parts of its record so far."""

    def __init__(
        self,
        placement: Placement,
        draft: Placement | None,
        has_inputs: bool,
        options: GenerationOptions,
        runner: Runner,
    ) -> None:
        if not placement.computes:
            raise without_values()
        self._placement, self._draft = placement, draft
        self._options, self._runner = options, runner
        self._effort = effort_named(options.effort)
        assistant = None if draft is None else draft.model
        prompts = Prompts.of_placement(placement, has_inputs=has_inputs)
        self._prompts, self._assistant = prompts, assistant
        self._grid = Grid(
            prompts, generator(placement.model, assistant, options), options, assistant
        )
        self._tree_stages: CellStages | None = None

    def generation(self) -> Generation:
        """Run the probes in their order, and return the record."""
        runner, placement = self._runner, self._placement
        stages = len(self._grid.cells) * (1 + self._options.memory)
        stages += len(self._grid.cells) * self._options.energy
        runner.progress.expect(2 + stages + 2 * self._options.trees + self._options.roofs)
        size = runner.attempt("size", lambda: size_probe.measure(placement.model), tells=False)
        runner.attempt("generation", lambda: self._grid.run(runner.progress), tells=False)
        cells = [self._with_energy(self._cell(run), run) for run in self._grid.cells]
        roofs = self._roofs()
        cells = self._with_work(cells, roofs)
        generation = Generation(
            target=describe(placement, training=False),
            environment=environment(),
            assistant=None if self._draft is None else describe(self._draft, training=False),
            size=size,
            cells=tuple(cells),
            fits=fits(cells),
            trees=tuple(self._trees(cells, roofs)),
            roofs=roofs,
            largest_batch=largest_batch(cells, _capacity(placement.device)),
            overhead=timer_cost(),
            interrupted=runner.interrupted or runner.interrupts.noted,
            warnings=(*runner.warnings, *self._warnings()),
        )
        generation = replace(generation, predictions=self._predictions(generation))
        return replace(generation, findings=findings(generation))

    def _cell(self, run: CellRun) -> GenerationCell:
        kind = "none" if run.calls and all(map(_without_cache, run.calls)) else run.cache_kind
        interrupted = bool(run.calls) and run.calls[0].interrupted  # its steps so far are kept
        if run.timed or interrupted:
            warmup = 0 if interrupted else WARMUP
            cell = cell_of_calls(
                run.calls,
                batch=run.batch,
                prompt=run.prompt,
                beams=self._options.beams,
                cache_kind=kind,
                warmup=warmup,
            )
            return replace(cell, status=run.status, reason=run.reason, error=run.error)
        return GenerationCell(
            batch=run.batch,
            prompt=run.prompt,
            beams=self._options.beams,
            new_tokens=self._options.new_tokens,
            cache_kind=kind,
            status=run.status,
            reason=run.reason or "It ended before a call was timed.",
            error=run.error,
            calls=tuple(run.calls),
            warmup=min(WARMUP, len(run.calls)),
        )

    def _with_energy(self, cell: GenerationCell, run: CellRun) -> GenerationCell:
        if not self._options.energy or not cell.done:
            return cell
        energy = self._energy(self._grid, run, cell.batch * cell.new_tokens)
        prefill = None
        if energy is not None and energy.joules is not None and cell.new_tokens > 1:
            prefill = self._energy(self._first_token_grid(), run, cell.batch * cell.prompt)
        return replace(cell, energy=energy, prefill_energy=prefill)

    def _energy(self, grid: Grid, run: CellRun, tokens: int) -> Energy | None:
        return self._runner.attempt(
            "energy",
            lambda: of_calls(
                grid.caller(run), self._placement.device, samples=run.batch, tokens=tokens
            ),
            tells=False,
        )

    def _first_token_grid(self) -> Grid:
        """Return the grid whose calls make one token, which are the prefill alone."""
        options = dataclasses.replace(self._options, new_tokens=1)
        caller = generator(self._placement.model, self._assistant, options)
        return Grid(self._prompts, caller, options, self._assistant)

    def _roofs(self) -> Roofs | None:
        """Return the device's roofs: those that are stored, or quickly measured where none are."""
        device, runner = self._placement.device, self._runner
        if not self._options.roofs:
            return None
        if not self._effort.roofs:
            return machine.known_roofs(device)
        measured = runner.attempt(
            "roofs", lambda: roofs_probe.measure(device, None, None, runner.progress), tells=False
        )
        if measured is None:
            return machine.known_roofs(device)
        runner.warnings.extend(measured[1])
        return measured[0]

    def _with_work(self, cells: list[GenerationCell], roofs: Roofs | None) -> list[GenerationCell]:
        """Return the cells with the work of their stages, and with the last step's memory."""
        chosen = self._tree_cell(cells)
        runs = self._grid.cells
        return [
            self._examined(cell, run, roofs, keep=index == chosen) if cell.done else cell
            for index, (cell, run) in enumerate(zip(cells, runs, strict=True))
        ]

    def _examined(
        self, cell: GenerationCell, run: CellRun, roofs: Roofs | None, *, keep: bool
    ) -> GenerationCell:
        runner = self._runner

        def work() -> tuple[CellStages, tuple[StageWork, ...]]:
            stages = CellStages(self._placement, self._grid, run)
            return stages, stages.work()

        counted = runner.attempt("work", work, tells=False)
        if counted is None:
            return cell
        stages, works = counted
        if keep:
            self._tree_stages = stages
        dtype, tf32 = _dtype(self._placement), self._tf32
        bounds = (bounded(work, roofs, dtype, _seconds(cell, work), tf32=tf32) for work in works)
        memory = None
        if self._options.memory:
            memory = runner.attempt("memory", stages.memory, tells=False)
        return replace(cell, work=tuple(bounds), memory=memory)

    def _tree_cell(self, cells: Sequence[GenerationCell]) -> int | None:
        """Return the cell with the largest prompt, and the smallest batch with that."""
        done = [index for index, cell in enumerate(cells) if cell.done]
        if not done or not self._options.trees:
            return None
        return min(done, key=lambda index: (-cells[index].prompt, cells[index].batch, index))

    def _trees(self, cells: Sequence[GenerationCell], roofs: Roofs | None) -> Iterator[StageTree]:
        index, stages = self._tree_cell(cells), self._tree_stages
        if index is None or stages is None:
            return
        names: tuple[Literal["prefill"], Literal["decode"]] = ("prefill", "decode")
        for stage in names:
            tree = self._runner.attempt(
                "timeline",
                functools.partial(stages.tree, stage, index, self._effort, roofs),
                tells=False,
            )
            if tree is not None:
                yield tree

    def _predictions(self, generation: Generation) -> tuple[GenerationPrediction, ...]:
        options = self._options
        predictions = (
            predict(
                generation,
                batch=batch,
                prompt=prompt,
                new_tokens=options.new_tokens,
                cache_kind=kind,
            )
            for kind in options.caches
            for batch, prompt in options.predict
        )
        return tuple(prediction for prediction in predictions if prediction is not None)

    def _warnings(self) -> Iterator[MeasurementWarning]:
        if self._grid.short:
            timed = min(len(run.calls) - WARMUP for run in self._grid.cells if not run.ended)
            yield MeasurementWarning(
                id="budget-spent",
                message=f"The budget ended the calls early: {timed} of a cell were timed, "
                f"not {self._options.calls}.",
                probe="generation",
                remedy="Give a larger budget, or fewer cells.",
            )
        if self._grid.load is not None:
            for warning in load_warnings(self._grid.load):
                yield replace(warning, probe="generation")
        for restoration in self._grid.restorations:
            yield from restoration.warnings("generation", lasting_only=True)

    @property
    def _tf32(self) -> bool:
        if self._placement.tf32 is not None:
            return self._placement.tf32
        return environment().settings.fp32_matmul == "tf32"


def _has_inputs(source: Source) -> bool:
    """Return whether the prompts are the user's, and not to be drawn."""
    if isinstance(source.target, TargetRequest):
        return bool(source.target.inputs)
    return bool(source.target.inputs.args or source.target.inputs.kwargs)


def _without_cache(call: GenerationCall) -> bool:
    """Return whether each step computed the whole sequence again."""
    steps = call.forwards.indices("decode")
    return bool(steps) and not any(call.forwards.cached[index] for index in steps)


def _seconds(cell: GenerationCell, work: StageWork) -> float | None:
    """Return how long a stage took in the median of the calls; of a step with those next to it."""
    if work.stage == "prefill":
        return None if cell.prefill is None else cell.prefill.value
    times = [
        forwards.seconds(index)
        for forwards in (call.forwards for call in cell.timed_calls)
        for index in sorted(
            forwards.indices("decode"), key=lambda step: abs(forwards.cached[step] - work.cached)
        )[:NEIGHBOURS]
    ]
    return statistics.median(times) if times else None


def _dtype(placement: Placement) -> str:
    module = module_of(placement.model)
    parameters = [] if module is None else members.parameters(module)
    dtypes = (p.dtype for p in parameters if p.is_floating_point())
    return str(next(dtypes, torch.float32)).removeprefix("torch.")


def _capacity(device: str) -> int | None:
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(device).total_memory)
    return memory_total()
