"""Protocols that a device implements for measuring: synchronization, timers, cold caches."""

from __future__ import annotations

import contextlib
from typing import Protocol


class DeviceTimer(Protocol):
    """Times the work that a device does between two marks of its own."""

    def start(self) -> None:
        """Mark the beginning on the device's queue."""

    def stop(self) -> None:
        """Mark the end on the device's queue."""

    def elapsed(self) -> float:
        """Return the seconds between the marks; the device must have been synchronized."""


class Device(Protocol):
    """A place where models run: `name` is torch's ("cpu", "cuda:0")."""

    name: str
    asynchronous: bool
    """True where a call may return before its work is done."""

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Make it the process's current device for a block."""

    def synchronize(self) -> None:
        """Return when all queued work is done."""

    def timer(self) -> DeviceTimer | None:
        """Return a timer of the device's own, or None where the host clock is the truth."""

    def flush_cache(self) -> None:
        """Push the model's data out of the last-level cache."""
