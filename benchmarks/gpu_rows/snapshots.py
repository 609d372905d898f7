"""A memory snapshot that torch dumps, read back and put beside the allocator's own figures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine
    from torchgauge.records.snapshot import DeviceMemory


def lines(machine: Machine) -> Iterator[Line]:
    """Yield the figures of a snapshot of three training steps of a small model."""
    if not machine.on_gpu:
        yield absent("training of a small model", "no CUDA allocator without a GPU")
        return
    import torch

    import torchgauge as tg

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        record(path, small_training(machine.device))
        stats = torch.cuda.memory_stats(machine.device)
        found = tg.read_snapshot(path)
    yield from compared(found.devices[0], stats)


def small_training(device: str) -> Any:
    """Return a call that trains a small model for three steps."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 512, device=device)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    return train


def record(path: Path, work: Any) -> None:
    """Run work while torch records its allocations, and dump the snapshot."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        work()
        torch.cuda.synchronize()
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def compared(ours: DeviceMemory, stats: Mapping[str, int]) -> Iterator[Line]:
    """Yield a line per figure of the snapshot that the statistics have too."""
    figures = {
        "allocated": (ours.allocated, "allocated_bytes.all.current"),
        "reserved": (ours.reserved, "reserved_bytes.all.current"),
        "requested": (ours.requested, "requested_bytes.all.current"),
        "split": (ours.fragmentation.split, "inactive_split_bytes.all.current"),
        "peak as asked for": (ours.peak and ours.peak.bytes, "requested_bytes.all.peak"),
    }
    for name, (figure, key) in figures.items():
        beside = stats.get(key)
        if figure is None or beside is None:
            yield Line(name, verdict="missed", note="not in the snapshot or the statistics")
            continue
        yield judged(
            name,
            f"{figure:,} B",
            f"{beside:,} B, {key}",
            goal="equal to the byte",
            met=figure == beside,
            ours=figure,
            beside=beside,
        )
