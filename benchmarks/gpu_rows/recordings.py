"""Small recordings of this GPU, fit to be test data: a trace, a snapshot, readings of NVML."""

from __future__ import annotations

import gzip
import json
import pickle
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

LARGEST = 16 * 2**20
FILES = ("training.json.gz", "recorded.json")
# The readings are those of the row "NVML".
GPU_FILES = (*FILES, "snapshot.pickle", "nvml.jsonl")


def lines(machine: Machine) -> Iterator[Line]:
    """Yield the size of each recording that was kept."""
    folder = machine.recordings
    if folder is None:
        yield absent("recordings", "asked for by --recordings DIR alone")
        return
    trace(machine, folder / "training.json.gz")
    if machine.on_gpu:
        snapshot(machine, folder / "snapshot.pickle")
    facts(machine, folder / "recorded.json")
    yield told(trimmed(folder), GPU_FILES if machine.on_gpu else FILES)


def told(sizes: dict[str, int], expected: tuple[str, ...]) -> Line:
    """Return the line of the recordings that are in the folder."""
    missing = [name for name in expected if not sizes.get(name)]
    return judged(
        "recordings",
        ", ".join(f"{name} {size:,} B" for name, size in sizes.items()),
        f"{sum(sizes.values()):,} B together",
        goal="each, ≤ 16 MiB",
        met=sum(sizes.values()) <= LARGEST and not missing,
        note="without " + ", ".join(missing) if missing else "",
        bytes=sum(sizes.values()),
    )


def trimmed(folder: Path, largest: int = LARGEST) -> dict[str, int]:
    """Delete the largest recordings until all fit together, and return the sizes of the rest."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
    while sum(sizes.values()) > largest:
        name = max(sizes, key=lambda name: sizes[name])
        (folder / name).unlink()
        del sizes[name]
    return sizes


def trace(machine: Machine, path: Path) -> None:
    """Record a training step of a small transformer with shapes, as torch.profiler writes it."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function

    model = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).to(machine.device)
    optimizer = torch.optim.AdamW(model.parameters())
    host = torch.randn(8, 32, 128)

    def step() -> None:
        optimizer.zero_grad()
        model(host.to(machine.device)).square().mean().backward()
        optimizer.step()

    step()
    machine.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True, profile_memory=True) as recorded:
        for number in range(2):
            with record_function(f"ProfilerStep#{number}"):
                step()
        machine.synchronize()
    plain = path.with_suffix("")
    recorded.export_chrome_trace(str(plain))
    path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()


def snapshot(machine: Machine, path: Path) -> None:
    """Record the allocations of three training steps of a small model."""
    from gpu_rows.snapshots import record, small_training

    record(path, small_training(machine.device))
    recorded = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(without_folders(recorded), protocol=4))


def without_folders(value: Any) -> Any:
    """Return a snapshot with files' names alone: folders say whose machine it was."""
    if isinstance(value, dict):
        return {
            key: Path(inner).name if key == "filename" else without_folders(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(without_folders(inner) for inner in value)
    return value


def facts(machine: Machine, path: Path) -> None:
    """Write of what device and versions the recordings are."""
    import torch

    name = torch.cuda.get_device_name(machine.device) if machine.on_gpu else platform.processor()
    path.write_text(
        json.dumps({"device": name, "torch": torch.__version__, "cuda": torch.version.cuda})
    )
