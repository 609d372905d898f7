"""What a server's processes used while they were under load."""

from __future__ import annotations

from torchgauge.records.record import Record


class ServerUse(Record, frozen=True, kw_only=True):
    """Readings of a local server's processes, as columns of equal length, from the level's begin.

    A column is empty where the system does not give it.

    Attributes:
        processes: How many there were at most.
        cores: Cores that they may use, by their affinity and their cgroup's quota.
        time: Seconds of each reading.
        cpu: Cores in use since the reading before.
        memory: Bytes of memory that are theirs (PSS, else RSS).
        read: Bytes per second read from disks.
        written: Bytes per second written to disks.
        sent: Bytes per second sent by the machine, if the server is the only one.
        received: Bytes per second received, likewise.
        gpu: Share of time in which a GPU ran kernels, 0 to 1.
        gpu_memory: Bytes of GPU memory.
        waiting: Share of time that its threads were ready and had no core (run queue).
        busiest: Cores in use by the busiest process, where that is one at most, else by its busiest
            thread: at 1 it is what further cores do not help.
        first_saturated: What was at its limit, and nearest to it: "cpu", "gpu", "memory", or "one
            core" of the busiest process; empty where none was. Of disks and the network no limit
            is known.
    """

    processes: int = 1
    cores: float | None = None
    time: tuple[float, ...] = ()
    cpu: tuple[float, ...] = ()
    memory: tuple[int, ...] = ()
    read: tuple[float, ...] = ()
    written: tuple[float, ...] = ()
    sent: tuple[float, ...] = ()
    received: tuple[float, ...] = ()
    gpu: tuple[float, ...] = ()
    gpu_memory: tuple[int, ...] = ()
    waiting: tuple[float, ...] = ()
    busiest: tuple[float, ...] = ()
    first_saturated: str = ""
