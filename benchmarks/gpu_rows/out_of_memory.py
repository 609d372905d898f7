"""What --on-oom writes as a GPU's memory runs out, beside what the program knows of itself."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine
    from torchgauge.records.memory.memory import OutOfMemory

# The share of the memory that the process may take, and calls after which it is surely full.
FRACTION = 0.05
MOST_CALLS = 20


def lines(machine: Machine) -> Iterator[Line]:
    """Yield what the record and the snapshot say of a model that keeps more in each call."""
    if not machine.on_gpu:
        yield absent("out of memory", "no GPU")
        return
    import torch
    from torch import nn

    import torchgauge as tg

    kept: list[Any] = []

    class Keeps(nn.Module):
        """Keeps twice as much in each call, in whole MiB: the error gives sizes in them."""

        def forward(self, x: Any) -> Any:
            kept.append(torch.empty(size_of(len(kept)), dtype=torch.uint8, device=x.device))
            return x

    model, x = nn.Sequential(nn.Identity(), Keeps()), torch.ones(1, device=machine.device)
    torch.cuda.set_per_process_memory_fraction(FRACTION, machine.device)
    with tempfile.TemporaryDirectory() as folder:
        with tg.timeline(on_oom=folder) as run, contextlib.suppress(torch.OutOfMemoryError):
            while len(kept) < MOST_CALLS:
                model(x)
        events = run.record.out_of_memory
        if not events or not events[0].snapshot:
            yield Line("out of memory", verdict="missed", note=f"{len(events)} events, no snapshot")
            return
        found = tg.read_snapshot(Path(folder) / events[0].snapshot)
    findings = {finding.id for finding in found.findings}
    alive = torch.cuda.memory_allocated(machine.device)
    yield from compared(events[0], found.devices[0].allocated, findings, size_of(len(kept)), alive)


def size_of(number: int) -> int:
    """Return the bytes of the call of a number, from 0."""
    return 2 ** (20 + number)


def compared(
    event: OutOfMemory, snapshot: int | None, findings: set[str], requested: int, alive: int
) -> Iterator[Line]:
    """Yield a line per figure: the bytes requested and alive, the layer, the finding."""
    for name, figure, beside in (
        ("bytes requested", event.requested, requested),
        ("bytes allocated", event.total, alive),
        ("bytes allocated, by the snapshot", snapshot, alive),
        ("layer", event.layer, "1 (Keeps)"),
    ):
        shown = "unknown" if figure is None else str(figure)
        yield judged(name, shown, str(beside), goal="equal", met=figure == beside)
    named = ", ".join(sorted(findings)) or "nothing"
    met = any(finding.startswith("oom-") for finding in findings)
    yield judged("findings in the snapshot", named, "oom-…", goal="named", met=met)
