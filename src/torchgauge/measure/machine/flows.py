"""Bytes to and from disks, files and the network: counters, and rates between two readings."""

from __future__ import annotations

from typing import NamedTuple

from torchgauge.device import counters


class Flows(NamedTuple):
    """Bytes since some time in the past; None where the system does not tell.

    `disk_…` are this process's at the device, `io_…` what it asked to read and write, out of caches
    and pipes too (Linux). `network_…` are of all processes on the machine, or in the container that
    has a network of its own: no system tells them by process.
    """

    disk_read: int | None = None
    disk_write: int | None = None
    io_read: int | None = None
    io_write: int | None = None
    network_sent: int | None = None
    network_received: int | None = None

    def rates(self, later: Flows, seconds: float) -> dict[str, float | None]:
        """Return bytes per second until a later reading, by name."""
        return {
            name: None if before is None or after is None else max(after - before, 0) / seconds
            for name, before, after in zip(self._fields, self, later, strict=True)
        }


def flows() -> Flows:
    """Read the counters."""
    sent, received = counters.network()
    own = counters.own_io()
    return Flows(
        disk_read=getattr(own, "read_bytes", None),
        disk_write=getattr(own, "write_bytes", None),
        io_read=getattr(own, "read_chars", None),
        io_write=getattr(own, "write_chars", None),
        network_sent=sent,
        network_received=received,
    )
