"""How busy a device was: the wall time in which it did anything at all."""

from __future__ import annotations

from torchgauge.records.record import Record


class DeviceUse(Record, frozen=True, kw_only=True):
    """Seconds in which a device was `busy`, with any stream, and `idle`, with none.

    Together they are the time from the step's begin to its end on the host, or that of the whole
    recording. Kernels of several streams run at once: the sum of their times may be more than busy.
    """

    device: int | None
    busy: float
    idle: float
