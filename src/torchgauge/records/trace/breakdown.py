"""Where the time of a rank's window goes."""

from __future__ import annotations

from typing import Literal, get_args

from torchgauge.records.record import Record

Work = Literal["kernel", "copy", "memory set"]
Limiter = Literal["warps", "blocks", "registers", "shared memory", "grid"]
Triple = tuple[int, int, int]
# The parts of a device's window.
Part = Literal[
    "compute", "communication", "copies", "idle: host", "idle: device", "idle: other",
    "idle: outside", "idle: unknown",
]  # fmt: skip
WINDOW_PARTS: tuple[Part, ...] = get_args(Part)


class Collective(Record, frozen=True, kw_only=True):
    """What a kernel communicated in each call: `elements` of `dtype` given, `group_size` ranks."""

    name: str
    dtype: str | None = None
    elements: int | None = None
    group_size: int | None = None


class Kernel(Record, frozen=True, kw_only=True):
    """The calls of one kernel by one node of the tree with one launch configuration, or copies.

    `durations` are ns of every recorded call in all recorded steps, ascending. `grid` is counted in
    blocks, `block` in threads; `registers` per thread, `shared_memory` in bytes per block.
    `occupancy` is the share of the device's warps that the launch can keep resident, `limiter` what
    keeps it from more: a resource of the multiprocessor, or too small a `grid`; "warps" where it is
    full. `bytes` are those of all calls. `pageable`: a copy from or to memory of the host that is
    not pinned. `launched`: whether the recording has its launch; `graph`: a CUDA graph ran it.
    """

    durations: tuple[int, ...]
    work: Work = "kernel"
    device: int | None = None
    streams: tuple[int, ...] = ()
    grid: Triple | None = None
    block: Triple | None = None
    registers: int | None = None
    shared_memory: int | None = None
    occupancy: float | None = None
    limiter: Limiter | None = None
    launched: bool = True
    graph: bool = False
    bytes: int | None = None
    pageable: bool | None = None
    collective: Collective | None = None

    @property
    def calls(self) -> int:
        """How many calls were recorded."""
        return len(self.durations)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second that copies achieved while they ran; None for kernels."""
        time = sum(self.durations)
        return self.bytes / time * 1e9 if self.bytes is not None and time else None

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of the calls took at most: 0.5 for the median."""
        return quantile(self.durations, share) * 1e-9


def quantile(ascending: tuple[int, ...] | list[int], share: float) -> float:
    """Return the value at this share of ascending ones: 0 the first, 1 the last, between linear."""
    place = (len(ascending) - 1) * share
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


class KernelSequence(Record, frozen=True, kw_only=True):
    """Kernels and copies that ran one after the other, in the same order, again and again.

    `names` are those of one repetition, `durations` their median seconds in the same order.
    `repeats` counts them in `runs` uninterrupted series. `time` is the seconds of all of them,
    `share` that of all device time, `span` the median seconds from the begin of one repetition to
    that of the next.
    """

    device: int | None
    stream: int | None
    names: tuple[str, ...]
    durations: tuple[float, ...]
    repeats: int
    runs: int
    time: float
    share: float
    span: float


class Idle(Record, frozen=True, kw_only=True):
    """Seconds in which nothing ran, by what was missing; together they are all of the idle time.

    Attributes:
        host_wait: Until the host had launched the next piece of work, and what a launch usually
            takes (twice the median of the file's onto an idle device at most) or its call.
        kernel_wait: Beyond that, the few microseconds that a device takes from one to the next.
        other: Beyond that, where it took longer: it waited for something else (an event, another
            stream, room on the device).
        unknown: Before work of which the file does not say when it was launched.
        outside: Before the first piece of work of the stream and after its last.
        between_launches: The part of `host_wait` in pauses of at most 0.5 ms: what a host takes
            from one launch to the next.
    """

    host_wait: float = 0.0
    kernel_wait: float = 0.0
    other: float = 0.0
    unknown: float = 0.0
    outside: float = 0.0
    between_launches: float | None = None

    @property
    def total(self) -> float:
        """Seconds of all causes."""
        return self.host_wait + self.kernel_wait + self.other + self.unknown + self.outside


class Breakdown(Record, frozen=True, kw_only=True):
    """The time of a device, or of one of its streams, in seconds.

    `window` is the time from the begin of the device's first piece of work to the end of its last,
    for its streams too: `compute` + `exposed_communication` + `exposed_copies` + `idle` = window.
    `compute` is the time in which any kernel ran that is no communication. What is exposed ran
    while nothing of the former did; `communication` and `copies` are all there was. Times in which
    several ran at once count once. `activities` is the number of kernels, copies and memory sets.
    """

    window: float
    compute: float
    communication: float
    copies: float
    exposed_communication: float
    exposed_copies: float
    idle: Idle
    activities: int

    @property
    def busy(self) -> float:
        """Seconds in which anything ran."""
        return self.compute + self.exposed_communication + self.exposed_copies

    @property
    def parts(self) -> dict[Part, float]:
        """Seconds of each part of the window."""
        work = (self.compute, self.exposed_communication, self.exposed_copies)
        idle = self.idle
        pauses = (idle.host_wait, idle.kernel_wait, idle.other, idle.outside, idle.unknown)
        return dict(zip(WINDOW_PARTS, (*work, *pauses), strict=True))

    @property
    def overlap(self) -> float | None:
        """The share of communication beside which a kernel computed; None without any."""
        if not self.communication:
            return None
        return 1 - self.exposed_communication / self.communication


class StreamTime(Record, frozen=True, kw_only=True):
    """The breakdown of one stream; `stream` is None where the trace does not say."""

    stream: int | None
    breakdown: Breakdown


class LatePiece(Record, frozen=True, kw_only=True):
    """A piece of work that a device began long after its launch, and did nothing before.

    Attributes:
        name: The kernel's or copy's name.
        begin: Seconds after the begin of the device's first work.
        idle: Seconds of the pause before it that are counted as `Idle.other`.
        delay: Seconds from its launch to its begin.
        first_of_stream: Whether the file has no work of its stream that began before.
    """

    name: str
    begin: float
    idle: float
    delay: float
    first_of_stream: bool

    @property
    def follows_unrecorded(self) -> bool:
        """Whether it probably waited for work of its stream from before the recording.

        Else work of other streams ran after its launch.
        """
        return self.first_of_stream and self.idle > self.delay / 2


class DeviceTime(Record, frozen=True, kw_only=True):
    """The breakdown of a device and of each of its streams.

    `longest_other` ended its longest pause of `Idle.other`; None without any.
    """

    device: int | None
    breakdown: Breakdown
    streams: tuple[StreamTime, ...] = ()
    longest_other: LatePiece | None = None


Link = Literal["compute", "communication", "wait", "copy", "host", "launch", "pause"]


class PathItem(Record, frozen=True, kw_only=True):
    """All links of one name: `name` is a kernel's, or the operator's that the host was in."""

    link: Link
    name: str
    count: int
    time: float


class CriticalPath(Record, frozen=True, kw_only=True):
    """The chain of work from the end of the last to the begin of the first: seconds by kind.

    It is estimated: dependencies are inferred from launches, streams and synchronisations, and from
    the waits of streams and of the host (`cuda_sync`) where those were recorded.

    Attributes:
        length: The sum of all links.
        wait: What communication kernels took longer than the shortest of their kind: they waited
            for other ranks. None where no two are of one kind; `communication` has it then.
        host: The host's time until the launch of the next work.
        launch: What a launch usually takes, or its call, as in `Idle.host_wait`.
        pause: The device's pauses before work that was due, or of which the file has no launch: of
            the causes of `Idle`, all others.
        items: The names with most of the time.
    """

    length: float
    compute: float
    communication: float
    copy: float
    host: float
    launch: float
    pause: float
    wait: float | None = None
    items: tuple[PathItem, ...] = ()


class ServingPhase(Record, frozen=True, kw_only=True):
    """All recorded steps of one phase, as vLLM, SGLang or ATOM name them.

    Attributes:
        phase: "prefill", "decode", "mixed", or the server's own word.
        steps: How many were recorded.
        requests: The requests of all steps together.
        tokens: The tokens that all steps together computed; None where the names do not say.
        host: Seconds of all steps on the host.
        device: Seconds of the device work that they launched.
        step_host: The median step, in seconds on the host.
        step_device: The median step's device work, in seconds.
        distance: Median seconds from the begin of one step to that of the next of any phase; None
            of a single step.
    """

    phase: str
    steps: int
    requests: int
    tokens: int | None
    host: float
    device: float
    step_host: float
    step_device: float
    distance: float | None


class UnknownRole(Record, frozen=True, kw_only=True):
    """A kernel on a stream whose known kernels communicate; it counts as computation.

    Attributes:
        name: The kernel's name, which no library is known to give.
        device: Its device, None where the trace does not say.
        stream: Its stream, None where the trace does not say.
        count: How often it ran.
        time: Seconds of all calls.
    """

    name: str
    device: int | None
    stream: int | None
    count: int
    time: float
