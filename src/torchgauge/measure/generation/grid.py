"""The calls of all cells, in rounds: one call of each in turn, so that drift hits all alike."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchgauge.device.load import Load, LoadWatch, gpu_metrics
from torchgauge.device.select import open_device
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.forward import running
from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.generator import Generator
from torchgauge.measure.generation.prompts import Prompts
from torchgauge.progress import Progress
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import Status
from torchgauge.targets.hygiene import Restoration, evaluation
from torchgauge.targets.inputs.inputs import Inputs

WARMUP = 1
SUBJECT = "Generating"


@dataclasses.dataclass
class CellRun:
    """A cell while it is measured: its shape, its calls so far, and why there are no more."""

    batch: int
    prompt: int
    cache_kind: str
    calls: list[GenerationCall] = dataclasses.field(default_factory=list)
    status: Status = "interrupted"
    reason: str = ""
    error: str = ""

    @property
    def timed(self) -> bool:
        """True where a call after the warm-up has returned."""
        return len([call for call in self.calls if not call.error]) > WARMUP

    @property
    def ended(self) -> bool:
        """True where no further call is worth a try."""
        return self.status in ("out of memory", "failed", "skipped")

    def end(self, status: Status, reason: str, error: str = "") -> None:
        """Say why no call follows."""
        self.status, self.reason, self.error = status, reason, error

    def is_larger_than(self, other: CellRun) -> bool:
        """Return whether it is at least as large as another one in each dimension."""
        if self.cache_kind != other.cache_kind:
            return False
        return self.batch >= other.batch and self.prompt >= other.prompt

    @property
    def label(self) -> str:
        """Its shape in words."""
        return f"batch {self.batch}, prompt {self.prompt:,}, cache {self.cache_kind}"


class Grid:
    """Caches × batches × prompts of one model.

    Attributes:
        cells: In the order in which they were asked for.
        short: Whether the budget ended the rounds early.
        restorations: What was put back of the models after the last block of `hygiene`.
        load: What else took the machine while `run` ran; None before.
    """

    def __init__(
        self,
        prompts: Prompts,
        generator: Generator,
        options: GenerationOptions,
        assistant: Any = None,
    ) -> None:
        self._prompts, self._generator = prompts, generator
        self._options, self._assistant = options, assistant
        batches, lengths = prompts.shapes(options)
        shapes = dict.fromkeys(itertools.product(options.caches, batches, lengths))
        self.cells = [CellRun(batch, prompt, kind) for kind, batch, prompt in shapes]
        self.short = False
        self.restorations: list[Restoration] = []
        self.load: Load | None = None
        self._inputs: dict[int, dict[str, Any]] = {}

    def run(self, progress: Progress) -> None:
        """Call every cell once to warm up, then as often as effort and budget allow."""
        with gpu_metrics(self._prompts.placement.device) as gpus:
            watch = LoadWatch(gpus)
            try:
                self._run(progress)
            finally:
                self.load = watch.load()

    def _run(self, progress: Progress) -> None:
        rounds = WARMUP + self._options.calls
        device, begin = open_device(self._prompts.placement.device), time.monotonic()
        with device.current(), self.hygiene():
            for number, cell in itertools.product(range(rounds), self.cells):
                if cell.ended:
                    continue
                progress.update(cell.label, number / rounds)
                self._call(cell, device.synchronize)
                spent = time.monotonic() - begin
                budget = self._options.budget
                over = budget is not None and spent > budget
                if over and all(run.timed or run.ended for run in self.cells):
                    self.short = number < rounds - 1 or cell is not self.cells[-1]
                    return

    @contextlib.contextmanager
    def hygiene(self) -> Iterator[None]:
        """Put models in evaluation mode and in their precision; put all back afterwards."""
        placement = self._prompts.placement
        inputs = Inputs(kwargs=self._prompts.inputs)
        with contextlib.ExitStack() as undo:
            self.restorations = [undo.enter_context(evaluation(placement.model, inputs))]
            if self._assistant is not None:
                self.restorations.append(undo.enter_context(evaluation(self._assistant)))
            undo.enter_context(placement.arithmetic())
            yield

    def ready(self, cell: CellRun) -> Callable[[], object]:
        """Return the next call of a cell. Raises as `Prompts.make` and `Generator.ready`."""
        inputs = self._inputs.get(id(cell))
        if inputs is None:
            inputs = self._inputs[id(cell)] = self._prompts.make(cell.batch, cell.prompt)
        return self._generator.ready(inputs, cell.cache_kind)

    def caller(self, cell: CellRun) -> Callable[[], None]:
        """Return what makes one call of a cell, and waits for it; hygiene is around each."""
        device = open_device(self._prompts.placement.device)

        def call() -> None:
            with device.current(), self.hygiene():
                self.ready(cell)()
                device.synchronize()

        return call

    def _call(self, cell: CellRun, synchronize: Callable[[], object]) -> None:
        if obstacle := self._obstacle(cell):
            cell.end(*obstacle)
            return
        placement = self._prompts.placement
        watch = CallWatch(placement.model, self._assistant)
        try:
            with running(placement.device, SUBJECT):
                call = self.ready(cell)
                synchronize()
                with watch:
                    call()
                    synchronize()
        except TorchgaugeError as error:
            no_memory = error.id == "out-of-memory"
            reason = " ".join(filter(None, (error.message, error.cause)))
            cell.end("out of memory" if no_memory else "failed", reason, error.id)
        finally:
            cell.calls += watch.calls
            if cell.timed and not cell.ended:
                cell.status = "done"
        if cell.ended:
            self._inputs.pop(id(cell), None)
            _give_back_memory()

    def _obstacle(self, cell: CellRun) -> tuple[Status, str, str] | None:
        if cell.calls:
            return None
        if reason := self._prompts.obstacle(cell.prompt, self._options.new_tokens):
            return "failed", reason, "positions-exceeded"
        for smaller in self.cells:
            if smaller.status == "out of memory" and cell.is_larger_than(smaller):
                return "skipped", f"Memory ran out before at {smaller.label}.", "out-of-memory"
        return None


def _give_back_memory() -> None:
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
