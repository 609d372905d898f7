"""Measured roofs beside what the vendor prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpu_rows.line import Line, absent, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine
    from torchgauge.records.work.roofline import Roofs

# A roof above the printed peak is a wrong clock; below half of it, a wrong kernel.
LOW, HIGH = 0.5, 1.02


def lines(machine: Machine) -> Iterator[Line]:
    """Yield the peak of each precision and the bandwidth, each as a share of the published one."""
    from torchgauge.device.roofs.roofs import datasheet, quick, refreshed

    measured = (quick if machine.tiny else refreshed)(machine.device)
    yield from compared(measured, datasheet(machine.device))


def compared(measured: Roofs, published: Roofs | None) -> Iterator[Line]:
    """Yield a line per figure of the measured roofs."""
    for dtype, peak in measured.peaks.items():
        beside = None if published is None else published.peaks.get(dtype)
        # The printed float64 is that of Tensor Cores, which torch's products need not use.
        yield _beside(f"matmul, {dtype}", peak * 1e-12, beside and beside * 1e-12, "TFLOP/s")
    bandwidth = measured.memory_bandwidth
    if bandwidth is None:
        yield absent("copy", "no working set was measured")
        return
    beside = None if published is None else published.memory_bandwidth
    yield _beside("copy", bandwidth * 1e-9, beside and beside * 1e-9, "GB/s")


def _beside(of: str, ours: float, published: float | None, unit: str) -> Line:
    if published is None:
        return judged(of, f"{ours:,.1f} {unit}", "not published, or not in our table", ours=ours)
    return judged(
        of,
        f"{ours:,.1f} {unit}",
        f"{published:,.1f} {unit} published: {ours / published:.0%} of it",
        goal=f"{LOW:.0%} to {HIGH:.0%}",
        met=LOW <= ours / published <= HIGH,
        ours=ours,
        published=published,
    )
