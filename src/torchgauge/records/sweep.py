"""A sweep over a grid of settings, each cell measured in a process of its own."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.latency.latency import Latency, Throughput
from torchgauge.records.memory.memory import Memory
from torchgauge.records.profile import Profile
from torchgauge.records.record import How, Interval, MeasurementWarning, Record
from torchgauge.records.target import TargetDescription

SCHEMA = "torchgauge.sweep/1"

Status = Literal["done", "out of memory", "unsupported", "crashed", "failed", "skipped"]
Objective = Literal["latency", "throughput", "memory"]


class CellSettings(Record, frozen=True, kw_only=True):
    """What a cell was run with; None leaves it as the target or the process has it.

    `seq_len` is the length of the inputs' sequences, `interop` the number of interop threads;
    `optimization` and `runtime` are how an ONNX file is run.
    """

    batch: int | None = None
    precision: str | None = None
    compile: str | None = None
    channels_last: bool | None = None
    threads: int | None = None
    interop: int | None = None
    device: str | None = None
    seq_len: int | None = None
    optimization: str | None = None
    runtime: str | None = None

    @property
    def series(self) -> CellSettings:
        """The same settings without the batch: what a row of batches has in common."""
        return msgspec.structs.replace(self, batch=None)

    @property
    def label(self) -> str:
        """The settings in words: "batch 4, bf16, compile default"; "as given" where none is set."""
        texts = {
            "batch": f"batch {self.batch}",
            "precision": self.precision,
            "compile": "eager" if self.compile == "none" else f"compile {self.compile}",
            "channels_last": "channels last" if self.channels_last else "contiguous",
            "threads": f"{self.threads} thread{'s' if self.threads != 1 else ''}",
            "interop": f"{self.interop} interop",
            "device": self.device,
            "seq_len": f"length {self.seq_len}",
            "optimization": f"graph optimisation {self.optimization}",
            "runtime": self.runtime,
        }
        given_texts = (
            text for name, text in texts.items() if text and getattr(self, name) is not None
        )
        return ", ".join(given_texts) or "as given"


AXES = CellSettings.__struct_fields__


class CellCost(Record, frozen=True, kw_only=True):
    """The work of one call; `at_least` where an operator has no formula. None is unknown."""

    flops: int | None
    macs: int | None
    bytes: int | None
    at_least: bool = False
    how: How = "counted"


class Cell(Record, frozen=True, kw_only=True):
    """One combination of settings: its figures, or in `reason` why there are none.

    `error` is the id of the error behind the status. `capacity` is how many bytes its device has
    for it; `overhead` is what the process (CPU) or its allocator (CUDA) held beyond the tensors of
    `memory`. `duration` is the seconds that all its processes took. `machine` is the fingerprint of
    the machine that it ran on.
    """

    settings: CellSettings
    status: Status
    reason: str = ""
    error: str = ""
    target: TargetDescription | None = None
    latency: Latency | None = None
    throughput: Throughput | None = None
    memory: Memory | None = None
    cost: CellCost | None = None
    capacity: int | None = None
    overhead: int | None = None
    machine: str = ""
    duration: float | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def done(self) -> bool:
        """True where its latency is known."""
        return self.status == "done"

    @property
    def per_second(self) -> float | None:
        """Samples per second; calls, where the inputs do not say how many samples they hold."""
        if self.throughput is None:
            return None
        return self.throughput.samples or self.throughput.calls

    @property
    def batch(self) -> int | None:
        """The batch size it was run with, also where only the target says it."""
        target_batch = None if self.target is None else self.target.batch
        return self.settings.batch or target_batch

    def profile(self, environment: Environment) -> Profile | None:
        """Return the cell's figures as a profile, for what reads profiles; None without figures."""
        if self.target is None:
            return None
        return Profile(
            target=self.target,
            environment=environment,
            latency=self.latency,
            throughput=self.throughput,
            memory=self.memory,
        )


class Prediction(Record, frozen=True, kw_only=True):
    """What a fit says of a batch that was not measured; `interval` is where a measurement would be.

    It is None where too few batches were measured. `extrapolated` lies outside of them.
    """

    batch: int
    value: float
    interval: Interval | None
    extrapolated: bool
    how: How = "estimated"


class Fit(Record, frozen=True, kw_only=True):
    """A figure against the batch: fixed + marginal × batch, in the figure's SI unit.

    `points` are (batch, figure) as measured. Intervals hold 95 % and are None for two points.
    `spread` is the relative standard deviation of a point around the line, `covariance` that of
    fixed, both, and marginal, `quantile` Student's t. `is_linear` is False where the points do not
    lie on a line, for the reason given.
    """

    fixed: float
    marginal: float
    points: tuple[tuple[int, float], ...]
    is_linear: bool
    reason: str = ""
    fixed_interval: Interval | None = None
    marginal_interval: Interval | None = None
    spread: float = 0.0
    covariance: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quantile: float | None = None
    how: How = "estimated"

    def value_at(self, batch: float) -> float:
        """Return the line at a batch."""
        return self.fixed + self.marginal * batch

    def predict(self, batch: int) -> Prediction:
        """Return the figure expected at a batch, with the 95 % interval of one measurement."""
        value, batches = self.value_at(batch), [point[0] for point in self.points]
        interval = None
        if self.quantile is not None:
            fixed, mixed, marginal = self.covariance
            line = fixed + 2 * batch * mixed + batch**2 * marginal
            half = self.quantile * math.sqrt(max(line, 0.0) + (self.spread * value) ** 2)
            interval = Interval(low=value - half, high=value + half)
        outside = not min(batches) <= batch <= max(batches)
        return Prediction(batch=batch, value=value, interval=interval, extrapolated=outside)


class Scaling(Record, frozen=True, kw_only=True):
    """How a row of batches scales: the cells that share all other settings.

    `largest` is the largest batch expected to fit into `capacity` bytes, None where unknown, and
    for programs whose export bounds the batch; `largest_done` was measured, and `smallest_failed`
    ran out of memory.
    """

    settings: CellSettings
    latency: Fit | None = None
    memory: Fit | None = None
    capacity: int | None = None
    largest: int | None = None
    largest_done: int | None = None
    smallest_failed: int | None = None


class Front(Record, frozen=True, kw_only=True):
    """The cells, by their place in the sweep, that no other beats in one objective for nothing.

    An objective that no cell has a figure of is left out.
    """

    objectives: tuple[Objective, ...]
    cells: tuple[int, ...]


class Best(Record, frozen=True, kw_only=True):
    """The best cell by one metric among those that keep the constraints.

    `cell` None: no cell does. `ties` are cells that keep them too and whose 95 % interval (without
    one, the range of the samples) overlaps that of the best: with any, no cell is surely the best.
    `borderline` are metrics of which a limit lies in the interval. `unknown` are cells of which a
    constrained figure is not known.
    """

    metric: str
    cell: int | None
    ties: tuple[int, ...] = ()
    borderline: tuple[str, ...] = ()
    unknown: tuple[int, ...] = ()


class Sweep(Exported, frozen=True, kw_only=True):
    """All cells of a grid, and what they say together; `constraints` as written.

    `target` is that of the first cell that ran. `axes` are the values asked for by name. `repeats`
    is how many processes, measured in turn, a cell has; `duration` the seconds of all cells.
    """

    schema: str = SCHEMA
    target: TargetDescription
    environment: Environment
    axes: dict[str, tuple[str, ...]]
    cells: tuple[Cell, ...]
    front: Front
    best: tuple[Best, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    constraints: str = ""
    repeats: int = 1
    executor: str = "process"
    duration: float = 0.0
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def complete(self) -> bool:
        """True where nothing was interrupted."""
        return not self.interrupted

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The warnings of the sweep itself; those of a cell stay with its cell."""
        return self.warnings

    def cell(self, **settings: object) -> Cell:
        """Return the cell whose settings are as given: `sweep.cell(batch=4, precision="bf16")`.

        Raises KeyError where there is none, or more than one.
        """
        matching = [
            cell
            for cell in self.cells
            if all(getattr(cell.settings, name) == value for name, value in settings.items())
        ]
        if len(matching) != 1:
            raise KeyError(f"{len(matching)} cells have {settings}")
        return matching[0]
