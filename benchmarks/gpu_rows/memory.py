"""The memory peak beside the allocator's own account, and what `count --backward` estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine
    from torchgauge.records.memory.memory import Memory

ESTIMATE_LOW, ESTIMATE_HIGH = 0.9, 1.15


class Account(NamedTuple):
    """What the allocator says of a step: peaks and the state after it, in bytes."""

    peak: int
    reserved: int
    unused: int
    split: int


def account(stats: Mapping[str, int]) -> Account:
    """Return the account from the statistics that torch.cuda.memory_stats gives after a step."""
    return Account(
        stats["allocated_bytes.all.peak"],
        stats["reserved_bytes.all.peak"],
        stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"],
        stats["inactive_split_bytes.all.current"],
    )


def lines(machine: Machine, name: str, step: str) -> Iterator[Line]:
    """Yield peak, reserved and fragmentation of one model, and of training the estimate."""
    import torch

    import torchgauge as tg
    from gpu_rows.machine import mean_square

    training = step == "training"
    placement = machine.model(name, training=training)
    train = tg.Training(mean_square, torch.optim.AdamW) if training else None
    theirs = None
    if machine.on_gpu:
        theirs = by_hand(machine, placement, training=training)
    found = tg.measure_memory(placement.model, placement.inputs, train=train)
    of = f"{name}, {step}"
    if theirs is None:
        yield judged(f"{of}: peak", f"{found.peak:,} B", peak=found.peak)
        yield absent(f"{of}: allocator", "no CUDA allocator without a GPU")
    else:
        yield from compared(of, found, theirs)
    if training:
        yield estimated(f"{of}: count --backward", machine, name, found.peak)


def compared(of: str, ours: Memory, theirs: Account) -> Iterator[Line]:
    """Yield a line per figure that both have, equal to the byte or not."""
    kept = ours.fragmentation
    figures = {
        "peak": (ours.peak, theirs.peak, "max_memory_allocated"),
        "reserved": (ours.reserved, theirs.reserved, "max_memory_reserved"),
        "reserved and unused": (kept and kept.reserved_unused, theirs.unused, "memory_stats"),
        "inactive split": (kept and kept.external, theirs.split, "memory_stats"),
    }
    for name, (figure, beside, source) in figures.items():
        if figure is None:
            yield Line(f"{of}: {name}", beside=f"{beside:,} B, {source}", verdict="missed")
            continue
        yield judged(
            f"{of}: {name}",
            f"{figure:,} B",
            f"{beside:,} B, {source} ({figure - beside:+,} B)",
            goal="equal to the byte",
            met=figure == beside,
            ours=figure,
            beside=beside,
        )


def estimated(of: str, machine: Machine, name: str, peak: int) -> Line:
    """Return the line of the estimate of a training step's memory beside the measured peak."""
    from torchgauge.api.measurements import count_request
    from torchgauge.measure.work.count_options import CountOptions

    request = machine.request(name, device="meta", training=True)
    counted = count_request(request, CountOptions(backward=True, optimizer="adamw")).training
    if counted is None:
        return Line(of, verdict="missed", note="no estimate")
    total, least = counted.assumed.total, counted.assumed.lower_bound
    return judged(
        of,
        f"{total:,} B together, {least:,} B at least",
        f"{peak:,} B measured: {total / peak:.2f} and {least / peak:.2f} of it",
        goal=f"together {ESTIMATE_LOW} to {ESTIMATE_HIGH}",
        met=ESTIMATE_LOW <= total / peak <= ESTIMATE_HIGH,
        together=total,
        least=least,
        peak=peak,
    )


def by_hand(machine: Machine, placement: Any, *, training: bool) -> Account:
    """Run steps as a script does, and return what the allocator says of the last one."""
    import torch

    from gpu_rows.machine import call_of

    step = training_step(placement) if training else call_of(placement)
    for _ in range(2):
        step()
    machine.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(machine.device)
    outputs = step()
    machine.synchronize()
    del outputs
    found = account(torch.cuda.memory_stats(machine.device))
    placement.model.zero_grad(set_to_none=True)
    return found


def training_step(placement: Any) -> Callable[[], Any]:
    """Return a training step with AdamW, in the order of torch's tutorials."""
    import torch

    from gpu_rows.machine import mean_square

    model, inputs = placement.model.train(), placement.inputs
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Any:
        optimizer.zero_grad()
        outputs = model(*inputs.args, **inputs.kwargs)
        mean_square(outputs, None).backward()
        optimizer.step()
        return outputs

    return step
