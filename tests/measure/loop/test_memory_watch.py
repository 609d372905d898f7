"""Memory near a limit: noticed from a thread, and written before the kernel would kill."""

import dataclasses
import time

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.measure.loop import out_of_memory
from torchgauge.measure.loop.out_of_memory import LONGEST, SHORTEST, MemoryWatch


@dataclasses.dataclass(eq=False)
class Room:
    """A limit of 1,000,000 bytes, of which as many are in use as a test says."""

    use: int | None
    killed: int = 0
    limit: int = 1_000_000
    name: str = "the cgroup's memory.max"

    def used(self):
        return self.use

    def kills(self):
        return self.killed


def test_it_calls_at_90_percent_and_then_halfway_to_the_limit():
    room, calls = Room(500_000), []
    watch = MemoryWatch([room], lambda _, used: calls.append(used))
    for use in (899_999, 900_000, 949_999, 950_000, 974_999, 975_000, 100_000):
        room.use = use
        watch.look()
    assert calls == [900_000, 950_000, 975_000]


def test_a_loop_that_begins_near_the_limit_has_its_first_mark_halfway():
    room, calls = Room(940_000), []
    watch = MemoryWatch([room], lambda _, used: calls.append(used))
    for use in (940_000, 969_999, 970_000):
        room.use = use
        watch.look()
    assert calls == [970_000]


def test_it_looks_the_more_often_the_nearer_the_limit_is():
    far, near = Room(0, limit=10**12), Room(880_000)
    assert MemoryWatch([far], print).look() == LONGEST
    assert MemoryWatch([far, near], print).look() == SHORTEST
    between = Room(0, limit=10**9)  # 900 MB may come at 4 GB/s
    assert MemoryWatch([between], print).look() == pytest.approx(0.225)
    assert MemoryWatch([Room(None)], print).look() == LONGEST


class Growing(nn.Module):
    """Uses most of the limit in its third call, until the thread has written what is alive."""

    def __init__(self, room, file):
        super().__init__()
        self.first, self.second = nn.Linear(64, 32, bias=False), nn.Tanh()
        self.room, self.file, self.calls = room, file, 0

    def forward(self, x):
        hidden = self.first(x).exp().sin()
        self.calls += 1
        if self.calls == 3:
            self.room.use = 930_000
            end = time.monotonic() + 20
            while not self.file.exists() and time.monotonic() < end:
                time.sleep(0.005)
            self.alive = tg.load(self.file).out_of_memory[0]
        return self.second(hidden)


def test_what_is_alive_is_written_while_the_loop_runs(tmp_path, monkeypatch):
    room = Room(100_000)
    monkeypatch.setattr(out_of_memory, "memory_rooms", lambda: [room])
    model = Growing(room, tmp_path / "oom.json")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with tg.timeline(on_oom=tmp_path) as run:
        for _ in range(4):
            model(torch.ones(128, 64)).sum().backward()
            optimizer.step()
            room.killed = 2
    alive = model.alive
    assert "93 %" in alive.message
    assert (alive.limit, alive.free, alive.step, alive.caught) == (1_000_000, 70_000, 2, None)
    assert alive.layer == "Growing"
    assert "hidden in Growing.forward" in {tensor.name for tensor in alive.tensors}
    (event,) = run.record.out_of_memory
    assert event.caught
    # The next module's call adds what autograd alone holds.
    saved = {"ExpBackward0", "SinBackward0"}
    assert saved & {tensor.operator for tensor in event.tensors}
    assert not saved & {tensor.operator for tensor in alive.tensors}
    assert "Memory nearly ran out on cpu" in str(run)
    assert next(w.message for w in run.record.warnings if w.id == "oom-killed").startswith(
        "The kernel killed 2 processes"
    )
