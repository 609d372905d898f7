"""What goes to and from disks, files and the network: counters, and rates between two readings."""

from __future__ import annotations

from typing import NamedTuple

import psutil


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
            name: None if then is None or now is None else max(now - then, 0) / seconds
            for name, then, now in zip(self._fields, self, later, strict=True)
        }


def flows(process: psutil.Process) -> Flows:
    """Read the counters."""
    network = psutil.net_io_counters()
    sent, received = (None, None) if network is None else network[:2]
    try:
        counters = process.io_counters()
    except (AttributeError, psutil.Error):
        return Flows(network_sent=sent, network_received=received)
    return Flows(
        disk_read=counters.read_bytes,
        disk_write=counters.write_bytes,
        io_read=getattr(counters, "read_chars", None),
        io_write=getattr(counters, "write_chars", None),
        network_sent=sent,
        network_received=received,
    )
