"""Outputs against outputs: how far a changed model's lie from the original's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchgauge.measure.storages import tensors_in
from torchgauge.model.advice import OutputCheck

# float64 rounds sums of many products a little above 1.
_ONE = 1.0


def kept(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors of the outputs on the host, floating ones as float64, in a fixed order."""
    found = [tensor.detach() for tensor in tensors_in(outputs)]
    return [_plain(tensor).clone() for tensor in found]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to("cpu", torch.float64)


def compared(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    tolerance: float,
    *,
    metrics: tuple[float, float] | None = None,
    times: int = 1,
) -> OutputCheck:
    """Compare tensors of `kept`; of an output of `times` as many samples the first ones.

    The largest error may be `tolerance` of the largest magnitude of the original's output. With
    `metrics`, the user's before and after, the metric decides: it may change by `tolerance`,
    relative to itself.
    """
    if times > 1:
        after = [
            new[: len(old)] if new.dim() else new for old, new in zip(before, after, strict=False)
        ]
    if different := _different(before, after):
        return OutputCheck(passed=False, bound=tolerance, reason=different)
    old, new = (_joined(tensors) for tensors in (before, after))
    if broken := _broken(old, new):
        return OutputCheck(passed=False, bound=tolerance, reason=broken)
    there = old.isfinite()
    check = _errors(old[there], new[there], tolerance, _agreement(before, after))
    return _by_metric(check, *metrics, tolerance) if metrics is not None else check


def _different(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> str:
    if not before:
        return "The original's output holds no tensor, so nothing can be compared."
    if len(before) != len(after):
        return f"It returns {len(after)} tensors in place of {len(before)}."
    for old, new in zip(before, after, strict=True):
        if old.shape != new.shape:
            return f"An output has shape {tuple(new.shape)} in place of {tuple(old.shape)}."
    return ""


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _broken(old: torch.Tensor, new: torch.Tensor) -> str:
    """Tell where one is a number and the other is none; an infinity of both (a mask) is alike."""
    if torch.equal(old.isfinite(), new.isfinite()):
        return ""
    return "Its output holds NaN or infinities where the original's does not."


def _errors(
    old: torch.Tensor, new: torch.Tensor, tolerance: float, agreement: float | None
) -> OutputCheck:
    if not old.numel():
        return OutputCheck(passed=True, bound=tolerance)
    error, size = (new - old).abs(), old.abs()
    largest, mean = float(size.max()), float(size.mean())
    worst = float(error.max())
    relative = worst / largest if largest else (0.0 if worst == 0 else math.inf)
    passed = relative <= tolerance
    norms = float(old.norm() * new.norm())
    return OutputCheck(
        passed=passed,
        bound=tolerance,
        max_absolute=worst,
        mean_absolute=float(error.mean()),
        max_relative=relative if math.isfinite(relative) else None,
        mean_relative=float(error.mean()) / mean if mean else None,
        cosine=min(float(old @ new) / norms, _ONE) if norms else None,
        argmax_agreement=agreement,
        reason="" if passed else "Its output differs by more than is allowed.",
    )


def _agreement(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float | None:
    """Return the share of positions with the same largest entry, of the first output with one."""
    for old, new in zip(before, after, strict=True):
        if old.dim() > 1 and old.shape[-1] > 1 and old.numel():
            return float((old.argmax(-1) == new.argmax(-1)).double().mean())
    return None


def _by_metric(check: OutputCheck, before: float, after: float, tolerance: float) -> OutputCheck:
    from msgspec.structs import replace

    change = abs(after - before) / (abs(before) or 1.0)
    passed = math.isfinite(after) and change <= tolerance
    return replace(
        check,
        passed=passed,
        bounded="metric",
        metric_before=before,
        metric_after=after if math.isfinite(after) else None,
        reason="" if passed else "Your metric changes by more than is allowed.",
    )
