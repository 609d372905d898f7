"""Outputs against outputs: how far a changed model's lie from the original's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torchgauge.measure.storages import tensors_in
from torchgauge.model.advice import OutputCheck
from torchgauge.target.tensors import strided

DIFFERS = "Its output differs by more than is allowed."
_Pair = tuple[torch.Tensor, torch.Tensor]

# float64 rounds sums of many products a little above 1.
_ONE = 1.0
# Of the largest value among all outputs: what is smaller is rounding, and has no scale of its own.
_ROUNDING = torch.finfo(torch.float32).eps
# These number and name things: what lies next to one is another. uint8 is mostly a picture.
_NAMES = (torch.int16, torch.int32, torch.int64, torch.bool)


def kept(outputs: Any) -> list[torch.Tensor]:
    """Return copies of the outputs' tensors on the host, in a fixed order.

    Whole numbers are int64, all others float64.
    """
    found = [tensor.detach() for tensor in tensors_in(outputs, repeated=True)]
    return [_plain(part).clone() for tensor in found for part in strided(tensor)]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to("cpu", torch.int64 if tensor.dtype in _NAMES else torch.float64)


def compared(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    tolerance: float,
    *,
    metrics: tuple[float, float] | None = None,
    times: int = 1,
) -> OutputCheck:
    """Compare tensors of `kept`; of an output of `times` as many samples the first ones.

    The largest error of each tensor may be `tolerance` of its largest magnitude in the original's
    output; whole numbers must be the same. With `metrics`, the user's before and after, the metric
    decides: it may change by `tolerance`, relative to itself.
    """
    if times > 1:
        after = [
            new[: len(old)] if new.dim() else new for old, new in zip(before, after, strict=False)
        ]
    if different := _different(before, after):
        return OutputCheck(passed=False, bound=tolerance, reason=different)
    agreement = _agreement(before, after)
    numbers = [(old.double(), new.double()) for old, new in zip(before, after, strict=True)]
    if broken := _broken(numbers):
        return OutputCheck(passed=False, bound=tolerance, reason=broken)
    named = [_both_name(*pair) for pair in zip(before, after, strict=True)]
    check = _errors([_finite(*pair) for pair in numbers], named, tolerance, agreement)
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


def _broken(numbers: Sequence[_Pair]) -> str:
    """Tell where one is a number and the other is none; an infinity of both (a mask) is alike."""
    if not any(old.isfinite().any() for old, _ in numbers) and any(o.numel() for o, _ in numbers):
        return "The original's output holds no finite number, so nothing can be compared."
    for old, new in numbers:
        odd = ~old.isfinite()
        if not torch.equal(odd, ~new.isfinite()) or not _same(old[odd], new[odd]):
            return "Its output holds NaN or infinities where the original's does not."
    return ""


def _same(old: torch.Tensor, new: torch.Tensor) -> bool:
    return torch.allclose(old, new, rtol=0.0, atol=0.0, equal_nan=True)


def _finite(old: torch.Tensor, new: torch.Tensor) -> _Pair:
    there = old.isfinite()
    return old[there], new[there]


def _both_name(old: torch.Tensor, new: torch.Tensor) -> bool:
    return old.dtype == new.dtype == torch.int64


def _errors(
    numbers: Sequence[_Pair], named: Sequence[bool], tolerance: float, agreement: float | None
) -> OutputCheck:
    old, new = (torch.cat(side) for side in zip(*numbers, strict=True))
    if not old.numel():
        return OutputCheck(passed=True, bound=tolerance)
    error, size = (new - old).abs(), old.abs()
    largest, mean = float(size.max()), float(size.mean())
    relative = max(_relative(*pair, least=_ROUNDING * largest) for pair in numbers)
    renamed = sum(int((a != b).sum()) for (a, b), name in zip(numbers, named, strict=True) if name)
    reason = "" if relative <= tolerance else DIFFERS
    norms = float(old.norm() * new.norm())
    return OutputCheck(
        passed=not renamed and relative <= tolerance,
        bound=tolerance,
        max_absolute=float(error.max()),
        mean_absolute=float(error.mean()),
        max_relative=relative if math.isfinite(relative) else None,
        mean_relative=float(error.mean()) / mean if mean else None,
        cosine=min(float(old @ new) / norms, _ONE) if norms else None,
        argmax_agreement=agreement,
        reason=f"{renamed} whole numbers (labels, indices) of its output changed."
        if renamed
        else reason,
    )


def _relative(old: torch.Tensor, new: torch.Tensor, *, least: float) -> float:
    """Return a tensor's largest error relative to its largest magnitude, or to the `least`."""
    if not old.numel():
        return 0.0
    worst, largest = float((new - old).abs().max()), max(float(old.abs().max()), least)
    return worst / largest if largest else (0.0 if worst == 0 else math.inf)


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
