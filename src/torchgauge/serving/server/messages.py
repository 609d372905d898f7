"""What the processes of the reference server tell each other, as lines of JSON."""

from __future__ import annotations

import msgspec

from torchgauge.records.finding import Failure
from torchgauge.records.target import TargetDescription


class WorkerReady(msgspec.Struct, frozen=True):
    """A worker has loaded the target, or says why not."""

    target: TargetDescription | None = None
    failure: Failure | None = None


class BatchDone(msgspec.Struct, frozen=True):
    """A batch is computed, or the model raised."""

    error: str = ""


class FrontReady(msgspec.Struct, frozen=True):
    """The server listens, with the processes of its workers; or says why not."""

    port: int = 0
    target: TargetDescription | None = None
    processes: tuple[int, ...] = ()
    failure: Failure | None = None
