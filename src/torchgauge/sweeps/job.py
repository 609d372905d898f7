"""One measurement of one cell: the job, and the entry that it ends as, whatever happens."""

from __future__ import annotations

import dataclasses
import re
import time

from torchgauge.analyze.latency.latency import combine
from torchgauge.errors import MeasurementError, MissingExtraError, TorchgaugeError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.child_work import Sent, measure_latency
from torchgauge.measure.processes.processes import ask
from torchgauge.records.environment import Environment
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.memory.memory import Memory
from torchgauge.records.profile import Profile
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.sweep import Cell, CellCost, CellSettings, Status
from torchgauge.records.work.cost import Cost
from torchgauge.targets.builds.source import Source
from torchgauge.targets.quantization import Variant

UNSUPPORTED = (
    *("precision-unsupported", "device-absent", "device-unsupported", "int8-unsupported"),
    *("channels-last-unsupported", "interop-unsupported", "input-length"),
    *("runtime-unsupported", "provider-missing", "provider-fell-back", "option-conflict"),
)
# What memory that ran out looks like where nothing of torch's could say so.
_MEMORY = re.compile(
    r"MemoryError|bad_alloc|annot allocate memory|failed to map segment|out of memory"
    r"|can't allocate memory|could not create a (primitive|memory)|SIGKILL"
)
# Under a limit the stacks of threads count as well.
_THREADS = re.compile(r"Thread creation failed|can't start new thread")
_COMPILER = re.compile(
    r"InvalidCxxCompiler|CppCompileError|BackendCompilerFailed|InductorError|TritonMissing"
    r"|torch\._dynamo\.exc|raised (Unsupported|InternalTorchDynamoError)"
)


@dataclasses.dataclass(frozen=True)
class Job:
    """One process's work; `number` counts a cell's processes from 1, of which the first sees all.

    The later ones measure latency alone, since memory and work do not vary.
    """

    settings: CellSettings
    number: int
    source: Variant
    options: LatencyOptions


class Entry(Record, frozen=True, kw_only=True):
    """What came of a job: a line of the journal."""

    number: int
    cell: Cell
    environment: Environment | None = None


Done = tuple[Job, Entry | TorchgaugeError]


def perform(job: Job) -> Entry:
    """Measure in a fresh process; running out of memory, crashing and the like are results.

    Raises InputError and MissingExtraError for what is wrong with the target itself;
    KeyboardInterrupt, also where something was measured before it.
    """
    start = time.perf_counter()
    try:
        if job.number == 1:
            profile, interrupted = ask(measure_essentials, Profile, job.source, job.options)
        else:
            run, interrupted = ask(measure_latency, LatencyRun, job.source, job.options)
    except TorchgaugeError as error:
        status = status_of(error, limited=job.source.memory_limit is not None)
        if status == "failed" and not isinstance(error, MeasurementError):
            raise
        return Entry(number=job.number, cell=_ended(job, error, status, start))
    if interrupted or (job.number == 1 and profile.interrupted):
        raise KeyboardInterrupt
    seconds = time.perf_counter() - start
    if job.number == 1:
        cell = _measured(job, profile, seconds)
        return Entry(number=job.number, cell=cell, environment=profile.environment)
    latency_cell = Cell(
        settings=job.settings, status="done", latency=combine([run]), duration=seconds
    )
    return Entry(number=job.number, cell=latency_cell)


def measure_essentials(sent: Sent[Source]) -> Profile:
    """Measure what a cell shows, in a process of its own."""
    from torchgauge.measure import essentials  # with its probes, which the parent does not need

    return essentials.measure(sent.source, sent.options)


def status_of(error: TorchgaugeError | MeasurementWarning, *, limited: bool = False) -> Status:
    """Return how a cell ended by its error or failed warning, its memory `limited` or not."""
    text = f"{error.message} {error.cause}"
    if error.id in UNSUPPORTED or isinstance(error, MissingExtraError):
        return "unsupported"
    if error.id in ("out-of-memory", "model-too-large") or _MEMORY.search(text):
        return "out of memory"
    if limited and _THREADS.search(text):
        return "out of memory"
    if error.id == "forward-raised" and _COMPILER.search(text):
        return "unsupported"
    return "crashed" if error.id == "child-killed" else "failed"


def _ended(job: Job, error: TorchgaugeError, status: Status, start: float) -> Cell:
    return Cell(
        settings=job.settings,
        status=status,
        reason=_reason(error.message, error.cause),
        error=error.id,
        duration=time.perf_counter() - start,
    )


def _reason(message: str, cause: str) -> str:
    first = next(iter(cause.strip().splitlines()), "")
    return f"{message} {first}".strip()


def _measured(job: Job, profile: Profile, duration: float) -> Cell:
    failed = next((w for w in profile.warnings if w.failed and w.probe == "latency"), None)
    limited = job.source.memory_limit is not None
    machine = profile.environment.machine
    return Cell(
        settings=job.settings,
        status="done" if failed is None else status_of(failed, limited=limited),
        reason="" if failed is None else _reason(failed.message, failed.cause),
        error="" if failed is None else failed.id,
        target=profile.target,
        latency=profile.latency,
        throughput=profile.throughput,
        memory=profile.memory,
        cost=_cost(profile.cost),
        capacity=_capacity(job, profile),
        overhead=_overhead(profile.memory),
        machine=machine.fingerprint,
        duration=duration,
        warnings=tuple(w for w in profile.all_warnings if w is not failed),
    )


def _cost(cost: Cost | None) -> CellCost | None:
    if cost is None or cost.flops_range:
        return None
    cost_totals = cost.totals
    return CellCost(
        flops=cost_totals["flops"],
        macs=cost_totals["macs"],
        bytes=cost_totals["bytes"],
        at_least=cost.at_least,
    )


def _capacity(job: Job, profile: Profile) -> int | None:
    machine, device = profile.environment.machine, profile.target.device
    index = int(device.partition(":")[2] or 0)
    total_memory: int | None = machine.memory
    if device.startswith("cuda"):
        total_memory = machine.gpus[index].memory if index < len(machine.gpus) else None
    return min(filter(None, (total_memory, job.source.memory_limit)), default=None)


def _overhead(memory: Memory | None) -> int | None:
    if memory is None:
        return None
    if memory.reserved is not None:
        return max(memory.reserved - memory.peak, 0)
    return None if memory.rss_gap is None else max(memory.rss_gap, 0)
