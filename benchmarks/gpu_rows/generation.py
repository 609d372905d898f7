"""Prefill and decode of a language model, beside `generate` timed by hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_rows.line import Line, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

NEAR = 0.05
PROMPT, NEW = 512, 32
ROUNDS = 5


class Stages(NamedTuple):
    """Seconds until the first token, and per token after it; None where it is unknown."""

    ttft: float | None
    tpot: float | None


def lines(machine: Machine) -> Iterator[Line]:
    """Yield both stages' times, and the decode step beside the least time to read the weights."""
    import torchgauge as tg

    model = machine.model("Llama 1B").model
    prompt, new = (8, 4) if machine.tiny else (PROMPT, NEW)
    found = tg.measure_generation(
        model, prompt=prompt, batch=1, new_tokens=new, effort="quick", roofs=False, progress=False
    )
    (cell,) = found.cells
    if not cell.done:
        failures = "; ".join(w.message for w in found.all_warnings if w.failed)
        yield Line("generation", verdict="failed", note=failures or cell.reason)
        return
    ours = Stages(cell.ttft and cell.ttft.value, cell.tpot and cell.tpot.value)
    yield from compared(ours, by_hand(machine, model, prompt, new))
    yield bounded(cell.step and cell.step.value, weights(model), bandwidth(machine))


def by_hand(machine: Machine, model: Any, prompt: int, new: int) -> Stages:
    """Return both times from calls for one token and for several, in turn, after one each."""
    import torch

    ids = torch.randint(2, 100, (1, prompt), device=machine.device)
    times: dict[int, list[float]] = {1: [], new: []}
    for _ in range(1 + machine.few(ROUNDS)):
        for tokens, taken in times.items():
            machine.synchronize()
            start = time.perf_counter()
            model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
            machine.synchronize()
            taken.append(time.perf_counter() - start)
    first, whole = (statistics.median(taken[1:]) for taken in times.values())
    return Stages(first, (whole - first) / (new - 1))


def weights(model: Any) -> int:
    """Return the bytes that a decode step reads of the weights: all but the table of tokens."""
    table = model.get_input_embeddings().weight
    return sum(p.nbytes for p in model.parameters() if p is not table)


def bandwidth(machine: Machine) -> float | None:
    """Return the device's bytes per second: as published, of a CPU as measured."""
    from torchgauge.device.roofs.roofs import datasheet, quick

    return (datasheet(machine.device) or quick(machine.device)).memory_bandwidth


def compared(ours: Stages, beside: Stages) -> Iterator[Line]:
    """Yield a line per stage."""
    names = {"ttft": "prefill: time to the first token", "tpot": "decode: time per token"}
    for stage, name in names.items():
        figure, hand = getattr(ours, stage), getattr(beside, stage)
        yield judged(
            f"Llama 1B, {name}",
            "unknown" if figure is None else f"{figure * 1e3:.3f} ms",
            f"{hand * 1e3:.3f} ms, generate() by hand",
            goal="within 5 %",
            met=figure is not None and abs(figure / hand - 1) <= NEAR,
            ours=figure,
            by_hand=hand,
        )


def bounded(step: float | None, read: int, rate: float | None) -> Line:
    """Return the line of a decode step beside the time to read the weights once."""
    least = None if rate is None else read / rate
    return judged(
        "Llama 1B, decode step",
        "unknown" if step is None else f"{step * 1e3:.3f} ms",
        "no bandwidth" if least is None else f"{least * 1e3:.3f} ms to read {read:,} B of weights",
        goal="≥ reading the weights",
        met=step is not None and least is not None and step >= least,
        step=step,
        least=least,
    )
