"""The record of a trace that was recorded elsewhere: of each rank, and of all of them together."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchgauge.records import rendering
from torchgauge.records.exported import Exported
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace import breakdown
from torchgauge.records.trace.host_delay import HostDelay
from torchgauge.records.trace.ranks import LateCall, Straggler
from torchgauge.records.work.roofline import Roofs
from torchgauge.records.work.utilization import Utilization

SCHEMA = "torchgauge.trace/1"
Layers = Literal["torchgauge", "torch"]


class UncountedEvents(Record, frozen=True, kw_only=True):
    """Spans of a category that no figure counts: how many, and seconds of all together.

    `category` is empty where the file says none.
    """

    category: str
    count: int
    time: float


class Contents(Record, frozen=True, kw_only=True):
    """What the file has: counts of events (spans and allocations), and what else was recorded.

    `layers` says whose ranges of layers there are, None without any. `begin` and `end` are ns since
    1970, None where the file's clock has another origin. `recorder` is "PyTorch", "JAX", "Proton",
    "torch.compile", "rocprof", "torch_npu" or "ExecuTorch", None where the file does not say; of
    JAX and Proton `operators` are the host's spans, of torch.compile the phases of compilation.
    `steps` are those that it marks. `uncounted` are spans of categories that no figure counts, most
    first.
    """

    events: int
    operators: int
    launches: int
    device_work: int
    python: int
    memory: int
    shapes: bool
    layers: Layers | None
    begin: int | None = None
    end: int | None = None
    recorder: str | None = None
    steps: int = 0
    uncounted: tuple[UncountedEvents, ...] = ()


class Device(Record, frozen=True, kw_only=True):
    """A device as the file's header has it; `memory` in bytes.

    `threads` are what one of its `multiprocessors` keeps resident at most.
    """

    number: int
    name: str
    memory: int | None = None
    capability: str = ""
    multiprocessors: int | None = None
    threads: int | None = None


class Copies(Record, frozen=True, kw_only=True):
    """All copies or memory sets of one kind: `time` in seconds and `bytes` of all together.

    `bytes` is None where not every one says its own. `pageable`: the host's memory is not pinned.
    """

    kind: str
    count: int
    time: float
    bytes: int | None
    pageable: bool | None = None

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second while they ran."""
        return self.bytes / self.time if self.bytes is not None and self.time else None


class Collectives(Record, frozen=True, kw_only=True):
    """Calls of one collective on messages of one size: seconds of all together.

    `bytes` are those of one call's message, `group` the ranks that took part. `wait` is the time
    that this rank waited for the last one to arrive, `transfer` the rest; None where only one
    rank's file is known, since both look alike then. `bus_bandwidth` is bytes per second over the
    slowest link, by nccl-tests' factors, of `transfer`, else of all the time: then it is at least
    so much.
    """

    name: str
    dtype: str | None
    bytes: int | None
    group: int | None
    calls: int
    time: float
    exposed: float
    wait: float | None = None
    transfer: float | None = None
    bus_bandwidth: float | None = None


class Queue(Record, frozen=True, kw_only=True):
    """How far the host was ahead of a stream.

    `mean` (over the stream's time) and `max_length` count the work launched and not yet begun;
    `empty` is the share of pieces that began with none behind them. `delay_median` and `delay_p99`
    are the seconds from the begin of the host's call to that of the work.
    """

    device: int | None
    stream: int | None
    mean: float
    max_length: int
    empty: float
    delay_median: float
    delay_p99: float


class Synchronisation(Record, frozen=True, kw_only=True):
    """Calls in which the host waited for a device: `time` seconds of all together.

    `operator` is that around the call ("aten::item"), `layer` the layer with most of the time.
    `idle` is how much of the time in which a device waited for the host they can have caused: the
    host was ahead by less afterwards. `function` is the user's Python function around the longest,
    as the file names it: "train.py(12): step".
    """

    call: str
    operator: str
    layer: str
    count: int
    time: float
    idle: float = 0.0
    function: str = ""


class MemoryUse(Record, frozen=True, kw_only=True):
    """What an allocator held over the recording; `device` is None for the host's.

    Bytes: `before` the first event, at the `peak` (`peak_at` seconds after the window's begin),
    `after` the last; `reserved` from the device at most, None where nothing says so; `allocated` by
    all `allocations` together. The timeline has seconds, bytes held and reserved: every point up to
    1,000, beyond that the lowest and highest of equal stretches of events.
    """

    device: int | None
    before: int
    peak: int
    peak_at: float
    after: int
    reserved: int | None
    allocations: int
    allocated: int
    timeline: tuple[tuple[float, int, int | None], ...] = ()


class GraphReplays(Record, frozen=True, kw_only=True):
    """The CUDA graphs of a file: their launches, and how much has the operators of their captures.

    `captured` counts the graphs whose capture is in the file, and `capture_time` the seconds from
    the first of these to the end of the last. `work` counts the kernels, copies and memory sets
    that were replayed, `joined` those whose operators are known from recordings of the captures,
    `without_sizes` those of them whose operands are not: captures of several sizes fit.
    """

    launches: int
    work: int
    joined: int = 0
    without_sizes: int = 0
    captured: int = 0
    capture_time: float = 0.0


class RankTrace(Record, frozen=True, kw_only=True, dict=True):
    """One rank's file: what is in it, and where its time went, in seconds.

    `window` is the time from the first event to the last. `launched_before` and `device_time` are
    of device work: what the file has no launch of, and all of it. `missing` says in words what was
    not recorded and what that leaves unknown. `versions` are those that the file names: of CUDA,
    HIP, their drivers, NCCL. `host_delays` are what keeps the host from launching work, by cause,
    longest first. `roofs` are those of the device's datasheet, None where it is not known, or
    devices are of several kinds. `part` is the part of the file that is described ("step 7"), empty
    where it is all. `accelerator` is what the devices are called, None for GPUs. `unknown_roles`
    are kernels that count as computation and may communicate. `exposed_last` are the seconds beside
    the last collective of each marked step in which nothing computed; None where fewer than two
    have one. `utilization` is over the whole window, all of its steps together; None without
    products whose sizes were recorded. `serving` are an inference server's phases. `sent` is what
    each rank got of this one in all-to-alls, in bytes by rank; empty without any, and where not
    every one says it. `graphs` are the launches of CUDA graphs, None without any.
    """

    file: str
    rank: int | None
    world: int | None
    window: float
    contents: Contents
    devices: tuple[Device, ...]
    times: tuple[breakdown.DeviceTime, ...]
    tree: Tree
    device_time: float
    launched_before: float
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    roofs: Roofs | None = None
    copies: tuple[Copies, ...] = ()
    collectives: tuple[Collectives, ...] = ()
    exposed_last: float | None = None
    sent: dict[int, int] = msgspec.field(default_factory=dict)
    unknown_roles: tuple[breakdown.UnknownRole, ...] = ()
    queues: tuple[Queue, ...] = ()
    synchronisations: tuple[Synchronisation, ...] = ()
    host_delays: tuple[HostDelay, ...] = ()
    sequences: tuple[breakdown.KernelSequence, ...] = ()
    serving: tuple[breakdown.ServingPhase, ...] = ()
    critical_path: breakdown.CriticalPath | None = None
    utilization: Utilization | None = None
    memory: tuple[MemoryUse, ...] = ()
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
    accelerator: str | None = None
    part: str = ""
    graphs: GraphReplays | None = None

    @property
    def device_kind(self) -> str:
        """What devices are called: "GPU"."""
        # Older records have TPUs in the list of devices alone.
        listed = "TPU" if any(device.name == "TPU" for device in self.devices) else "GPU"
        return self.accelerator or listed

    def called(self, device: int | None) -> str:
        """Return what a device is called: "GPU 0"."""
        return self.device_kind if device is None else f"{self.device_kind} {device}"

    def stream_name(self, device: int | None, stream: int | None) -> str:
        """Return what a stream is called: "GPU 0 stream 7"."""
        return f"{self.device_kind} {device} stream {stream}".replace("None", "?")

    def table(self, kind: str = "kernels", *, by_shape: bool = False) -> Table:
        """Return layers, operators, kernels or categories as a flat table, of all steps together.

        Raises InputError `table-unknown`.
        """
        if kind == "categories":
            by_category: Table = rendering.categories(self)
            return by_category
        options = {"by_shape": by_shape} if kind == "operators" else {}
        return tables.table(self.tree, kind, **options)


class RankWait(Record, frozen=True, kw_only=True):
    """Seconds that a rank `waits` in collectives for the last one, and is `waited_for` as the last.

    That counts from when the middle one of the others came. `skew` is by how much its clock is
    ahead of the middle one of the ranks, of those that groups join. `kernel_time` is how long its
    kernels take, relative to the same kernels of the median rank: 1.2 is a fifth longer; None where
    most ranks share too few.
    """

    rank: int
    waits: float
    waited_for: float
    skew: float
    kernel_time: float | None = None


class SlowCall(Record, frozen=True, kw_only=True):
    """A call of a collective whose transfer took much longer than the others of its kind.

    `number` counts the calls of this collective and size from 0; `time` is when it began, in
    seconds after the first collective; `transfer` and `usual` (the median of its kind) are seconds.
    """

    name: str
    bytes: int | None
    number: int
    time: float
    transfer: float
    usual: float


class Job(Record, frozen=True, kw_only=True):
    """What the files of several ranks say together, from `calls` collectives.

    Each is put side by side on the ranks of its group. `waits` are of the ranks with any of them.

    `stragglers` are the ranks that come last far more often than chance would have it, in the order
    in which they were named. `straggler` is the one of them that the others wait for longest,
    `lost` for how many seconds; None without any. `slow` and `late` are single calls: with a long
    transfer, and with a long wait for one rank. `unmatched` are kinds that not all ranks of their
    group have equally often: those that differ from most are left out of them.
    """

    calls: int
    waits: tuple[RankWait, ...]
    slow: tuple[SlowCall, ...] = ()
    late: tuple[LateCall, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    straggler: int | None = None
    lost: float | None = None
    unmatched: int = 0

    @property
    def lost_by_rank(self) -> dict[int, float]:
        """Seconds that the others wait for each straggler; records of before `stragglers` too."""
        if self.stragglers:
            return {straggler.rank: straggler.lost for straggler in self.stragglers}
        return {} if self.straggler is None or self.lost is None else {self.straggler: self.lost}


class Trace(Exported, frozen=True, kw_only=True):
    """What a file, or a directory with the files of ranks, says: the ranks in order of number.

    `missing` are ranks of the job without a file. `job` is there where two ranks or more are.
    """

    schema: str = SCHEMA
    name: str
    ranks: tuple[RankTrace, ...]
    missing: tuple[int, ...] = ()
    job: Job | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
