"""The record of a language model's generation: prefill, decode, cache, and how they grow."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell, GenerationPrediction, StageFit
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.target import InputDescription, TargetDescription
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.records.work.size import Size

SCHEMA = "torchgauge.generation/1"


class StageTree(Record, frozen=True, kw_only=True):
    """Where the time of one forward goes: layers and operators of a prefill or a decode step.

    `cell` is the index of the cell whose forward it is, `cached` what its cache held before.
    """

    stage: Literal["prefill", "decode"]
    cell: int
    cached: int
    tree: Tree
    cost: Cost | None = None


class LargestBatch(Record, frozen=True, kw_only=True):
    """The largest batch that is expected to fit at a context: estimated from measured peaks.

    `capacity` is the bytes of the device; `fixed` the bytes of any batch, `per_sequence` those of a
    sequence with `context` positions. `done` was measured, `failed` ran out of memory.
    """

    context: int
    capacity: int
    fixed: int
    per_sequence: int
    largest: int
    done: int | None = None
    failed: int | None = None


class Generation(Exported, frozen=True, kw_only=True):
    """What generation takes, by shape; a part that was not or could not be measured is None.

    Attributes:
        target: The model, its device and precision.
        assistant: The draft model of assisted decoding; None without one.
        environment: The machine and its software.
        size: Parameters and bytes of the model.
        watched: Whether the calls are a program's own (`tg.watch_generation`).
        cells: The shapes, in the order in which they were asked for or seen.
        fits: How prefill and decode grow with tokens and context, by kind of cache.
        predictions: Of shapes that were asked for and not measured.
        trees: Of a prefill and of a decode step apart.
        roofs: The device's roofs, which lower bounds are made from.
        largest_batch: At the longest context; None where memory does not tell.
        overhead: Seconds that watching adds to a forward.
        findings: What costs time or memory, what is worth most first.
        interrupted: Whether Ctrl-C ended it.
        warnings: Reasons to doubt a figure.
    """

    schema: str = SCHEMA
    target: TargetDescription
    environment: Environment
    assistant: TargetDescription | None = None
    size: Size | None = None
    watched: bool = False
    cells: tuple[GenerationCell, ...] = ()
    fits: tuple[StageFit, ...] = ()
    predictions: tuple[GenerationPrediction, ...] = ()
    trees: tuple[StageTree, ...] = ()
    roofs: Roofs | None = None
    largest_batch: LargestBatch | None = None
    overhead: float | None = None
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of its trees, each once."""
        warnings = {warning.id: warning for tree in self.trees for warning in tree.tree.warnings}
        return (*self.warnings, *warnings.values())

    @property
    def done(self) -> tuple[GenerationCell, ...]:
        """The cells that were measured."""
        return tuple(cell for cell in self.cells if cell.done)

    def fit(self, stage: Literal["prefill", "decode"], cache_kind: str) -> StageFit | None:
        """Return the fit of a stage with a kind of cache; None where there is none."""
        return next((f for f in self.fits if (f.stage, f.cache_kind) == (stage, cache_kind)), None)

    def tree(self, stage: Literal["prefill", "decode"]) -> Tree | None:
        """Return the tree of a stage's forward; None where there is none."""
        return next((tree.tree for tree in self.trees if tree.stage == stage), None)

    def profile(self, cell: GenerationCell | None = None) -> Profile:
        """Return a cell as a profile, for what reads profiles; without one the model alone.

        Its target's name and inputs have the shape, so that no other shape is compared with it.
        """
        model = Profile(target=self.target, environment=self.environment, size=self.size)
        if cell is None:
            return model
        prompt = InputDescription(name="prompt", shape=(cell.batch, cell.prompt), dtype="int64")
        answer = InputDescription(name=cell.label, shape=(cell.new_tokens,), dtype="new tokens")
        target = msgspec.structs.replace(
            self.target,
            name=f"{self.target.name}, {cell.label}",
            inputs=(prompt, answer),
            batch=cell.batch,
        )
        return msgspec.structs.replace(
            model, target=target, memory=cell.memory, energy=cell.energy, generation=cell
        )

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The measured cells as profiles."""
        return tuple(map(self.profile, self.done))
