"""The record of a user's own loop: where its recorded steps went, and how long all of them took."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import Literal, get_args

from torchgauge.records import rendering
from torchgauge.records.environment import Environment
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.memory.loop_memory import LoopMemory
from torchgauge.records.memory.memory import OutOfMemory
from torchgauge.records.record import Interval, MeasurementWarning, Record
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.compilation import CompilationCost
from torchgauge.records.timeline.loader_wait import LoaderWait
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tree import TracedFunction, Tree
from torchgauge.records.trace.host_delay import HostDelay
from torchgauge.records.work.utilization import Utilization

LoopBound = Literal[
    "loader",
    "host",
    "compute",
    "communication",
    "rank",
    "memory traffic",
    "nothing stands out",
    "unclear",
]


class LoopVerdict(Record, frozen=True, kw_only=True):
    """What bounds the steps of a loop, or of the loops of several ranks.

    Attributes:
        bound: What most of a step waits for; of a fault what it is a fault of.
        fault: Whether it is something slow that need not be; else it is what takes most of a step
            in which nothing is wrong.
        title: The verdict in one line.
        cause: What it is more closely: "data loading", "backward", "garbage collection".
        layer: The layer that it is of, where it is one's.
        rank: The rank that the others wait for; None where no rank stands out.
        share: Its share of a step.
        interval: The interval of `share`, over steps that resemble their neighbours.
        time: Seconds of a step.
        steps: Steps that it is of, none of them under the profiler.
        evidence: Figures that it is based on.
        command: What to run next; empty where the program is not known.
    """

    bound: LoopBound
    title: str
    fault: bool = False
    cause: str = ""
    layer: str = ""
    rank: int | None = None
    share: float | None = None
    interval: Interval | None = None
    time: float | None = None
    steps: int = 0
    evidence: tuple[str, ...] = ()
    command: str = ""


StepKind = Literal[
    "loading", "forward", "backward", "optimizer", "waiting", "collecting", "outside"
]
STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


class StepTimes(Record, frozen=True, kw_only=True):
    """Seconds of each step by kind, with no profiler attached; with `preempted` they are the step.

    What runs inside something else counts where it is itself: a collection during the forward pass
    is no part of that. On a GPU these are times of the host, which runs ahead of the device.

    Attributes:
        steps: The numbers of these steps in the loop, from 1; of a long loop every second, fourth,
            … step.
        loading: In the iterator of a torch DataLoader.
        forward: In the modules that the loop itself calls, losses with them.
        backward: In `backward()`, without the wait for gradients of other processes at its end.
        optimizer: In the optimizer's step.
        waiting: Waiting for other processes.
        collecting: In Python's garbage collection.
        outside: In the rest of the loop.
        preempted: In which the thread could have run and had no core, whatever it was doing. None
            where the system does not tell: it is in the other kinds then.
    """

    steps: tuple[int, ...]
    loading: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    optimizer: tuple[float, ...]
    waiting: tuple[float, ...]
    collecting: tuple[float, ...]
    outside: tuple[float, ...]
    preempted: tuple[float, ...] | None = None

    def seconds(self, kind: StepKind) -> tuple[float, ...]:
        """Return the seconds of one kind, by step."""
        times: tuple[float, ...] = getattr(self, kind)
        return times

    @property
    def running(self) -> tuple[float, ...]:
        """The seconds of each step without those in which the thread had no core."""
        return tuple(map(sum, zip(*map(self.seconds, STEP_KINDS), strict=True)))

    @property
    def durations(self) -> tuple[float, ...]:
        """The seconds of each step."""
        if self.preempted is None:
            return self.running
        return tuple(map(sum, zip(self.running, self.preempted, strict=True)))


SCHEMA = "torchgauge.loop/1"
Phase = Literal[
    "bare", "ready", "estimate", "warmup", "record", "settle", "stamp", "memory", "paused"
]


class Stretch(Record, frozen=True, kw_only=True):
    """Steps of one kind, one after the other: their durations in seconds.

    "bare" steps ran without a profiler, "paused" ones without clocks too, "estimate", "warmup" and
    "record" under it; in "stamp" steps the times of layers were taken. In "ready" and "settle"
    steps what the next ones need was in place and not in use; "memory" was watched in its steps.
    """

    phase: Phase
    durations: tuple[float, ...]


class Captured(Record, frozen=True, kw_only=True):
    """What was recorded, in steps: of `requested` ones (None: as many as fit) those `recorded`.

    `events`, `memory` and `file` are what recording a step takes (bytes), None where the loop ended
    before that was known; `budget` is the memory in bytes that a recording may take. `reason` says
    why fewer steps were recorded.
    """

    requested: int | None
    recorded: int
    budget: int
    events: int | None = None
    memory: int | None = None
    file: int | None = None
    reason: str = ""


class ScalarCalls(Record, frozen=True, kw_only=True):
    """Calls of one line that read a tensor's value, as `item()` does, and wait for it.

    `call` is the method; `calls` and `time` are of a recorded step, calls and seconds.
    """

    file: str
    line: int
    call: str
    calls: float
    time: float


class Rank(Record, frozen=True, kw_only=True):
    """One process of a distributed job; `job` is the same for all that were started together."""

    number: int
    world: int
    job: str = ""


def saved_by_rank(path: str | Path, rank: Rank | None) -> Path:
    """Return the path of one process's record: `loop.json` becomes `loop.rank0.json` in a job."""
    path = Path(path)
    return path if rank is None else path.with_name(f"{path.stem}.rank{rank.number}{path.suffix}")


class Loop(Exported, frozen=True, kw_only=True):
    """The timeline of a loop; `tree` shows one step, None where no whole step was recorded.

    `by` is what ended a step: an optimizer's step, a call of the model or the loop's own
    `run.step()`; "" where no step ended. `functions` are those traced by line, most time first;
    None where lines were not asked for. `stretches` are the steps in order, the first 100,000 of
    `count`. `batch` is the leading dimension that the tensors of the model's first calls share,
    None where these differ. `communication` and `waiting` are seconds of a step: in which
    communication between processes was under way, and in which the loop had nothing else to do.
    `utilization` is of this process's device at the bare steps' mean, from the FLOPs of recorded
    steps; None where no products were recorded or no bare step was timed. `host_delays` are what
    kept the loop from its work: waiting for a data loader in recorded steps, garbage collection and
    compilation in bare ones. `findings` are what costs time, what is worth most first. `step_times`
    says what steps without a profiler did; None where none ended. `scalars` are the calls in
    recorded steps that read a tensor's value. `loader_waits` splits the waits for data loaders in
    bare and stamped steps. `compilation_costs` are of the first step and of those without a change
    of wrappers. `memory` is of watched steps, on request alone; so are moments of `out_of_memory`
    but that which ended the loop. `program` is what ran, as its user wrote it; empty where that is
    not known. `verdict` is what bounds the steps. `measuring_cost` are seconds that its clocks take
    in and after a step, an interval about the mean; None where too few steps were without.
    """

    schema: str = SCHEMA
    roots: tuple[str, ...]
    environment: Environment
    captured: Captured
    by: Literal["", "call", "optimizer", "explicit"] = ""
    count: int = 0
    batch: int | None = None
    tree: Tree | None = None
    stretches: tuple[Stretch, ...] = ()
    communication: float | None = None
    waiting: float | None = None
    utilization: Utilization | None = None
    host_delays: tuple[HostDelay, ...] = ()
    step_times: StepTimes | None = None
    scalars: tuple[ScalarCalls, ...] = ()
    program: str = ""
    verdict: LoopVerdict | None = None
    loader_waits: tuple[LoaderWait, ...] = ()
    compilation_costs: tuple[CompilationCost, ...] = ()
    memory: LoopMemory | None = None
    out_of_memory: tuple[OutOfMemory, ...] = ()
    measuring_cost: Interval | None = None
    rank: Rank | None = None
    functions: tuple[TracedFunction, ...] | None = None
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def without_model(self) -> bool:
        """True where no module was called, and no step ended."""
        return not self.roots and not self.count and self.tree is None

    @property
    def steps(self) -> tuple[float, ...]:
        """The durations of all steps in seconds."""
        return tuple(itertools.chain.from_iterable(stretch.durations for stretch in self.stretches))

    @property
    def ran_out(self) -> OutOfMemory | None:
        """The failed allocation that ended the loop; None where none did."""
        events = (event for event in self.out_of_memory if event.caught is False)
        return next(events, None)

    @property
    def samples(self) -> int | None:
        """Samples of a step: the batch of the first calls times the model's calls in a step."""
        if self.batch is None or self.tree is None or len(self.roots) != 1:
            return None
        # Where the loop found its model itself, the outermost node is the loop, without calls.
        calls = self.tree.rows[0].calls or sum(
            row.calls for row in self.tree.rows if row.kind == "layer" and row.parent == 0
        )
        return self.batch * calls if calls else None

    @property
    def loading(self) -> float | None:
        """The share of the steps without a profiler that DataLoaders take; None without one."""
        return sum(wait.share for wait in self.loader_waits) if self.loader_waits else None

    @property
    def copied(self) -> float | None:
        """Seconds of a step in which a device received copies from the host; None without one."""
        if self.tree is None or not self.tree.devices:
            return None
        rows = (row for row in self.tree.rows if row.kernel is not None and "HtoD" in row.name)
        return sum(row.device or 0 for row in rows) * 1e-9

    @property
    def bare(self) -> float | None:
        """The median of the bare steps in seconds, without the first of each stretch."""
        return self.median("bare")

    def median(self, phase: Phase) -> float | None:
        """Return the median duration of the steps of a phase, in seconds; None without any."""
        durations = Loop.durations_of(self.stretches, phase)
        return statistics.median(durations) if durations else None

    @staticmethod
    def durations_of(stretches: tuple[Stretch, ...], phase: Phase) -> list[float]:
        """Return these, in seconds; of bare and paused steps the first of a stretch is left out."""
        return [
            duration
            for stretch in stretches
            if stretch.phase == phase
            for duration in stretch.durations[phase in ("bare", "paused") :]
        ]

    @property
    def all_warnings(self) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of its tree."""
        return self.warnings + (() if self.tree is None else self.tree.warnings)

    def table(self, kind: Literal["layers", "operators", "categories"] = "layers") -> Table:
        """Return the nodes of a step as a flat table; empty where no step was recorded."""
        if self.tree is None:
            return Table({})
        if kind == "categories":
            by_category: Table = rendering.categories(self)
            return by_category
        return (tables.layers if kind == "layers" else tables.operators)(self.tree)

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON, whole or not at all, and return the path.

        Of a distributed job each process writes its own: `loop.json` becomes `loop.rank0.json`.
        Raises InputError `output-unwritable`.
        """
        return super().save(saved_by_rank(path, self.rank))
