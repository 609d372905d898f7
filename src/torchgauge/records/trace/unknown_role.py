"""Kernels of which nothing says whether they compute or communicate."""

from __future__ import annotations

from torchgauge.records.record import Record


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
