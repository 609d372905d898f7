"""What keeps the host from launching work, by cause."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

Cause = Literal[
    "garbage collection",
    "allocation",
    "first launch",
    "compilation",
    "data loading",
    "optimizer loop",
]


# Also the name of the bucket of a loop's tree.
LOADING: Literal["data loading"] = "data loading"
LOADER = "enumerate(DataLoader)#"  # the class of the iterator follows
_HAS_WORKERS = {"_SingleProcessDataLoaderIter": False, "_MultiProcessingDataLoaderIter": True}


class HostDelay(Record, frozen=True, kw_only=True):
    """Spans of one cause and name: of a trace on the threads that launch device work.

    Where the file has no device work, on the thread that has most of the operators. Of a loop those
    of its steps, and all of Python's garbage collection.

    Attributes:
        cause: What the host does in them.
        name: The outermost span's name: "enumerate(DataLoader)#_SingleProcessDataLoaderIter….",
            "cudaMalloc".
        calls: How often.
        time: Seconds in them, without what is of another cause.
        longest: Seconds of the longest.
        idle: Seconds of `time` in which the device waited for this thread to launch; of several
            devices the one that waits longest. None where there is no device work.
        steps: The steps of a loop that these are of, 1 for the whole of a trace.
        duration: Seconds of all these steps, None for the whole of a trace.
    """

    cause: Cause
    name: str
    calls: int
    time: float
    longest: float
    idle: float | None = None
    steps: int = 1
    duration: float | None = None

    @property
    def cost(self) -> float:
        """Seconds that it costs the device, or the host where no device is in the file."""
        return self.time if self.idle is None else self.idle

    @property
    def has_workers(self) -> bool | None:
        """Whether processes of their own make the batches waited for; None where not known."""
        return _HAS_WORKERS.get(self.name.removeprefix(LOADER).partition(".")[0])
