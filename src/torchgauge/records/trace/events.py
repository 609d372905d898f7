"""Events of a recorded trace, as columns: one row per span of time, sparse facts in tables beside.

A table's `row` says which span each of its entries belongs to, in ascending order. Times are
integer nanoseconds since the earliest timestamp of the trace. An integer that the trace does not
say is `ABSENT`, a fraction NaN, a code ABSENT.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from torchgauge.records.record import MeasurementWarning

T = TypeVar("T")
Integers = NDArray[np.signedinteger[Any]]  # numbers in eight bytes, or in fewer where they fit
Fractions = NDArray[np.float64]
Codes = NDArray[np.int32]
Rows = NDArray[np.signedinteger[Any]]
ThreadId = tuple[int | str, int | str]

ABSENT = -1
MOST_RANKS = 1 << 20  # no job has as many: what says more is no number of ranks


@dataclasses.dataclass(frozen=True, eq=False)
class Coded(Generic[T]):
    """A column of few distinct values: `values[codes[i]]` is that of entry i."""

    codes: Codes
    values: tuple[T, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> T | None:
        code = self.codes[index]
        return None if code == ABSENT else self.values[code]

    def where(self, test: Callable[[T], bool]) -> NDArray[np.bool_]:
        """Return which entries have a value that passes; `test` runs once per distinct value."""
        passed = np.fromiter((test(value) for value in self.values), np.bool_, len(self.values))
        # The last place answers for absent ones, whose code is −1.
        return np.append(passed, False)[self.codes]

    def take(self, entries: NDArray[Any]) -> Coded[T]:
        """Return the column of these entries (indices or a mask), with the same values."""
        return Coded(self.codes[entries], self.values)


@dataclasses.dataclass(frozen=True, eq=False)
class Operators:
    """Arguments of operators, and of annotations on the host and on the device.

    `index` is the profiler's own count ("Ev Idx"). `sequence` joins a backward operator to the
    forward one of the same number; `forward_thread` is no thread id, and 0 on forward operators.
    `dims`, `strides`, `types` and `inputs` are nested tuples, as the trace has them. `layer_class`
    is the class of the layer whose call a span is, in traces that torchgauge wrote; the span's name
    is the layer's path.
    """

    row: Rows
    external_id: Integers
    index: Integers
    sequence: Integers
    forward_thread: Integers
    dims: Coded[tuple[Any, ...]]
    strides: Coded[tuple[Any, ...]]
    types: Coded[tuple[Any, ...]]
    inputs: Coded[tuple[Any, ...]]
    modules: Coded[str]
    layer_class: Coded[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Launches:
    """Runtime and driver calls of the host; `correlation` names the device work they started.

    `kernel` is what they launched, where the recorder says it (AMD's).
    """

    row: Rows
    correlation: Integers
    external_id: Integers
    kernel: Coded[str]


@dataclasses.dataclass(frozen=True, eq=False)
class DeviceWork:
    """Kernels, copies and memory sets.

    `grid` and `block` are n × 3. `shared_memory` and `size` in bytes, `bandwidth` in bytes per
    second, `occupancy` a fraction: NaN also where the trace says 0, which Kineto writes for every
    kernel with more than 100 KiB of shared memory. `kind` is AMD's and JAX's; NVIDIA's copies say
    theirs in their names.
    """

    row: Rows
    device: Integers
    stream: Integers
    correlation: Integers
    external_id: Integers
    grid: Integers
    block: Integers
    registers: Integers
    shared_memory: Integers
    blocks_per_sm: Fractions
    warps_per_sm: Fractions
    occupancy: Fractions
    graph_node: Integers
    size: Integers
    bandwidth: Fractions
    kind: Coded[str]


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedWaits:
    """Waits of streams and of the host (`cuda_sync`), recorded with `enable_cuda_sync_events`.

    The name of the span says who waits: "Stream Wait Event", "Event Sync", "Stream Sync" or
    "Context Sync". `correlation` names the call, `device` and `stream` who waits, or what the host
    waits for. Of a wait for an event `awaited_stream` is where it was recorded, and
    `awaited_record` names the call that did that.
    """

    row: Rows
    correlation: Integers
    device: Integers
    stream: Integers
    awaited_stream: Integers
    awaited_record: Integers


@dataclasses.dataclass(frozen=True, eq=False)
class Collectives:
    """Communication: operators (`record_param_comms`) and the kernels they started.

    Elements are counts, of `dtype`. `ranks` is text, which Kineto cuts short in large groups; so is
    `split_in`, the rows that go to each rank of the group, "[]" where all get as much.
    """

    row: Rows
    name: Coded[str]
    dtype: Coded[str]
    elements_in: Integers
    elements_out: Integers
    group: Coded[str]
    group_description: Coded[str]
    group_size: Integers
    ranks: Coded[str]
    split_in: Coded[str]


@dataclasses.dataclass(frozen=True, eq=False)
class PythonCalls:
    """Python functions; `module` numbers the nn.Module whose call it is."""

    row: Rows
    id: Integers
    parent: Integers
    module: Integers


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryEvents:
    """Allocations (`size` > 0 bytes) and frees (`size` < 0), in the order of the file.

    `thread` indexes `Events.thread.values`. `allocated` and `reserved` are the allocator's totals
    in bytes. `device_type` is torch's number: 0 the CPU, 1 CUDA; the CPU's `device` is −1.
    """

    time: Integers
    thread: Codes
    address: Integers
    size: Integers
    allocated: Integers
    reserved: Integers
    device_type: Integers
    device: Integers
    index: Integers

    def on_device(self, device_type: int, device: int) -> MemoryEvents:
        """Return the allocations and frees of one device in the order in which they happened.

        `index` counts the events of one thread after those of another: with a backward thread it
        puts frees before their allocations. So times order them, and `index` those of equal times,
        which old traces have in whole microseconds.
        """
        order = np.lexsort((self.index, self.time))
        chosen = (self.device_type == device_type) & (self.device == device)
        rows = order[chosen[order]]
        return MemoryEvents(**{name: column[rows] for name, column in vars(self).items()})


@dataclasses.dataclass(frozen=True, eq=False)
class Flows:
    """Ends of arrows: `fwdbwd` from forward to backward, `ac2g` from a launch to its work.

    Those of one arrow share `id` and `category`; `begins` says which end this is. `thread` indexes
    `Events.thread.values`.
    """

    time: Integers
    thread: Codes
    id: Integers
    category: Coded[str]
    begins: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class TraceMetadata:
    """What the file says of itself; `None` or empty where it does not.

    `origin` is the earliest timestamp in ns: since 1970, or since `base_time` (ns since 1970) where
    there is one. `devices` and `distributed` are the file's own properties, unchanged; of JAX's
    traces `devices` has number ("id") and kind ("name") of each. `recorder` is who wrote the file:
    "PyTorch", "JAX", "Proton", "torch.compile", "rocprof", "torch_npu" or "ExecuTorch". `versions`
    are of CUDA, HIP, their drivers and NCCL, by name. `accelerator` is what the devices are called
    ("TPU"), None for GPUs.
    """

    origin: int
    base_time: int | None = None
    schema_version: int | None = None
    display_time_unit: str | None = None
    trace_name: str | None = None
    devices: tuple[dict[str, Any], ...] = ()
    distributed: dict[str, Any] | None = None
    process_names: dict[int | str, str] = dataclasses.field(default_factory=dict)
    process_labels: dict[int | str, str] = dataclasses.field(default_factory=dict)
    thread_names: dict[ThreadId, str] = dataclasses.field(default_factory=dict)
    recorder: str | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    accelerator: str | None = None

    @property
    def rank(self) -> int | None:
        """The number of the process in its job."""
        return ranks_said(self.distributed)[0]

    @property
    def world(self) -> int | None:
        """How many processes the job has."""
        return ranks_said(self.distributed)[1]


def ranks_said(distributed: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """Return rank and number of ranks from `distributedInfo`, None for invalid ones."""
    rank, world = ((distributed or {}).get(key) for key in ("rank", "world_size"))
    return _ranks(rank), _ranks(world)


def _ranks(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < MOST_RANKS else None


@dataclasses.dataclass(frozen=True, eq=False)
class CapturedWork:
    """Device work of CUDA graphs, and the rows of the operators that it was captured in."""

    row: Rows
    operator: Rows


_NONE_CAPTURED = CapturedWork(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Events:
    """A trace: its spans of time in the order of the file, and the tables next to them.

    `category` is that of today's Kineto, also for old files and for those of JAX and Proton; absent
    where the file says nothing that it follows from. Names of operators end in their overload where
    the recording asked for it: `aten::add.Tensor`.
    """

    start: Integers
    duration: Integers
    name: Coded[str]
    category: Coded[str]
    thread: Coded[ThreadId]
    operators: Operators
    launches: Launches
    device_work: DeviceWork
    collectives: Collectives
    recorded_waits: RecordedWaits
    python: PythonCalls
    memory: MemoryEvents
    flows: Flows
    metadata: TraceMetadata
    warnings: tuple[MeasurementWarning, ...] = ()
    captured: CapturedWork = _NONE_CAPTURED

    def __len__(self) -> int:
        return len(self.start)
