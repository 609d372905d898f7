"""Faults put into a program on purpose: each is to be named, and its clean twin is not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    import torch

    from gpu_rows.machine import Machine

STEPS = 5
Named = set[str]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault: `names` runs the program, with the fault or without, and returns what is named.

    `expected` is the id of the finding or warning, or how it begins.
    """

    title: str
    expected: str
    names: Callable[[Machine, bool], Named]
    needs_gpu: bool = True


def verdict(fault: Fault, faulty: Named, clean: Named) -> Line:
    """Return the line of a fault: it is named where it is, and nowhere else."""
    there, elsewhere = (_within(fault.expected, names) for names in (faulty, clean))
    return judged(
        fault.title,
        f"{fault.expected}: {'named' if there else 'not named'}",
        "named without the fault too" if elsewhere else "not named without the fault",
        goal="named, and only there",
        met=there and not elsewhere,
        note="" if there else "named instead: " + (", ".join(sorted(faulty)) or "nothing"),
    )


def lines(machine: Machine, kind: str) -> Iterator[Line]:
    """Yield a line per fault that `kind` names; one that fails costs its own line."""
    for fault in FAULTS[kind]:
        if fault.needs_gpu and not machine.on_gpu:
            yield absent(fault.title, "no GPU")
            continue
        try:
            clean, faulty = fault.names(machine, False), fault.names(machine, True)
        except Exception as error:  # noqa: BLE001 - the others are still worth their lines
            words = " ".join(str(error).split())[:300]
            yield Line(fault.title, verdict="failed", note=f"{type(error).__name__}: {words}")
            continue
        yield verdict(fault, faulty, clean)


def _within(expected: str, names: Named) -> bool:
    return any(name.startswith(expected) for name in names)


# What a recording of some steps names.


def traced(machine: Machine, step: Callable[[], object], *, before: Callable[[], object]) -> Named:
    """Return the findings in a trace of some steps; `before` runs right before the recording."""
    from torch.profiler import ProfilerActivity, profile

    import torchgauge as tg

    step()
    machine.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorder = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        before()
        with recorder:
            for _ in range(STEPS):
                step()
            machine.synchronize()
        recorder.export_chrome_trace(str(path))
        trace = tg.read_trace(path, progress=False)
    return {one.id for rank in trace.ranks for one in rank.findings}


def of_steps(make: Callable[[Machine, bool], Callable[[], object]]) -> Any:
    """Return the names in a trace of the step that `make` returns."""

    def names(machine: Machine, faulty: bool) -> Named:
        return traced(machine, make(machine, faulty), before=machine.synchronize)

    return names


def pageable(machine: Machine, faulty: bool) -> Callable[[], object]:
    """Copy a batch to the device from memory that is not pinned, or is."""
    import torch

    batch = _operand(dataclasses.replace(machine, device="cpu"), 2048, torch.float32)
    batch = batch if faulty else batch.pin_memory()
    weight = _operand(machine, 2048, torch.float32)
    return lambda: batch.to(machine.device, non_blocking=not faulty) @ weight


def item(machine: Machine, faulty: bool) -> Callable[[], object]:
    """Read the loss of each step on the host, or not."""
    x = _operand(machine, 4096)

    def step() -> object:
        y = x
        for _ in range(4):
            y = (x @ y).tanh()
            loss = y.mean()
            if faulty:
                loss.item()
        return loss

    return step


def tiny(machine: Machine, faulty: bool) -> Callable[[], object]:
    """Launch kernels of a microsecond one by one, or a few large ones."""
    x = _operand(machine, 4 if faulty else 4096)

    def step() -> object:
        y = x
        for _ in range(300 if faulty else 10):
            y = y + 1 if faulty else x @ y
        return y

    return step


@dataclasses.dataclass(frozen=True)
class _Samples:
    """Samples that take `seconds` each."""

    seconds: float

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


def waiting_for_data(machine: Machine, faulty: bool) -> Callable[[], object]:
    """Have a DataLoader without workers take 10 ms for each batch, or next to none."""
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(_Samples(0.01 if faulty else 0.0), batch_size=None))
    x = _operand(machine, 4096)

    def step() -> object:
        next(batches)
        y = x
        for _ in range(4):
            y = x @ y
        return y

    return step


def full_fp32(machine: Machine, faulty: bool) -> Named:
    """Multiply in float32 without TF32, or with it."""
    import torch

    from torchgauge.device.settings import tf32

    x = _operand(machine, 4096, torch.float32)
    with tf32(allowed=not faulty):
        return traced(machine, lambda: x @ x, before=machine.synchronize)


def not_awaited(machine: Machine, faulty: bool) -> Named:
    """Begin to record while the device is still busy with what came before, or not."""
    x = _operand(machine, 8192)

    def queue() -> None:
        # 0.7 s of an H100: longer than the profiler takes to begin.
        for _ in range(machine.few(500) if faulty else 0):
            x @ x

    return traced(machine, lambda: x @ x, before=queue)


def _operand(machine: Machine, size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    import torch

    dtype, size = dtype or torch.bfloat16, min(size, 16) if machine.tiny else size
    return torch.randn(size, size, device=machine.device, dtype=torch.float32).to(dtype) * 1e-2


# What a memory snapshot names.


def of_allocations(work: Callable[[Machine, bool], None]) -> Any:
    """Return the names in a snapshot of what `work` allocates."""

    def names(machine: Machine, faulty: bool) -> Named:
        import torchgauge as tg
        from gpu_rows.snapshots import record

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "snapshot.pickle"
            record(path, lambda: work(machine, faulty))
            HELD.clear()
            return {one.id for one in tg.read_snapshot(path).findings}

    return names


HELD: list[Any] = []


def leak(machine: Machine, faulty: bool) -> None:
    """Keep a tensor of every step in a list, or let it go."""
    import torch

    for _ in range(100):
        activations = torch.zeros(2**20, device=machine.device)
        if faulty:
            HELD.append(activations)


def fragments(machine: Machine, faulty: bool) -> None:
    """Free every other block of many, or all of the later half."""
    import torch

    blocks = [torch.zeros(5 * 2**18, device=machine.device) for _ in range(64)]
    HELD.extend(blocks[::2] if faulty else blocks[:32])


def out_of_memory(machine: Machine, faulty: bool) -> None:
    """Ask for twice what the process may take, or for little."""
    import torch

    whole = torch.cuda.get_device_properties(machine.device).total_memory
    torch.cuda.set_per_process_memory_fraction(0.02, machine.device)
    try:
        with contextlib.suppress(torch.OutOfMemoryError):
            size = int(whole * 0.04) if faulty else 2**20
            HELD.append(torch.empty(size, dtype=torch.uint8, device=machine.device))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, machine.device)


# What a profile names.


def overflow(machine: Machine, faulty: bool) -> Named:
    """Multiply beyond the largest number of fp16, or below it."""
    import torch
    from torch import nn

    import torchgauge as tg

    model = nn.Linear(64, 64, bias=False).to(machine.device, torch.float16)
    nn.init.constant_(model.weight, 1e4 if faulty else 1e-2)
    x = torch.ones(1, 64, device=machine.device, dtype=torch.float16)
    return {warning.id for warning in tg.measure_memory(model, x).warnings}


def graph_break(machine: Machine, faulty: bool) -> Named:
    """Print in the middle of a compiled model, or not."""
    import torch

    import torchgauge as tg

    class Printing(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            if faulty:
                torch._dynamo.graph_break()
            return y.relu()

    torch._dynamo.reset()
    backend = "eager" if machine.tiny else "inductor"
    model = torch.compile(Printing(64, 64).to(machine.device), backend=backend)
    x = torch.ones(1, 64, device=machine.device)
    profile = tg.profile(model, x, detail="summary", processes=1, iterations=5, progress=False)
    made = profile.compilation
    return {"graph_breaks"} if made is not None and made.graph_breaks else set()


def blocking(machine: Machine, faulty: bool) -> Named:
    """Set CUDA_LAUNCH_BLOCKING, or not."""
    from torchgauge.device.checks.every import environment_findings

    del machine
    before = os.environ.pop("CUDA_LAUNCH_BLOCKING", None)
    if faulty:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    try:
        return {one.id for one in environment_findings()}
    finally:
        os.environ.pop("CUDA_LAUNCH_BLOCKING", None)
        if before is not None:
            os.environ["CUDA_LAUNCH_BLOCKING"] = before


TRACES = (
    Fault("copies from pageable memory", "pageable-copies", of_steps(pageable)),
    Fault(".item() in the step", "synchronisation", of_steps(item)),
    Fault("tiny kernels", "idle-host", of_steps(tiny)),
    Fault("a slow data loader", "input-pipeline", of_steps(waiting_for_data)),
    Fault("fp32 without TF32", "fp32-products", full_fp32),
    Fault("recorded without a synchronize", "launched-before", not_awaited),
)
SNAPSHOTS = (
    Fault("tensors kept in a list", "kept", of_allocations(leak)),
    Fault("fragments", "fragmented", of_allocations(fragments)),
    Fault("out of memory", "oom-", of_allocations(out_of_memory)),
)
PROFILES = (
    Fault("fp16 overflow", "output-not-finite", overflow, needs_gpu=False),
    Fault("a graph break", "graph_breaks", graph_break, needs_gpu=False),
    Fault("CUDA_LAUNCH_BLOCKING", "slowing-variable", blocking, needs_gpu=False),
)
# What names them: findings in a trace, in a snapshot, or warnings and figures of a profile.
FAULTS = {"traces": TRACES, "snapshots": SNAPSHOTS, "profiles": PROFILES}
