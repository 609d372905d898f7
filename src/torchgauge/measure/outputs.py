"""Outputs against outputs: how far a changed model's lie from the original's."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchgauge.measure.storages import tensors_in
from torchgauge.model.advice import OutputCheck
from torchgauge.target.tensors import strided

DIFFERS = "Its output differs by more than is allowed."

# Of the largest value among all outputs: what is smaller is rounding, and has no scale of its own.
_ROUNDING = torch.finfo(torch.float32).eps
# These number and name things: what lies next to one is another. uint8 is mostly a picture.
_NAMES = (torch.int16, torch.int32, torch.int64, torch.bool)
# Compared in float64, so many elements at a time: logits may fill the memory as they are.
_ELEMENTS = 2**22


def kept(outputs: Any) -> list[torch.Tensor]:
    """Return copies of the outputs' tensors on the host, in a fixed order."""
    found = [tensor.detach() for tensor in tensors_in(outputs, repeated=True)]
    return [_plain(part) for tensor in found for part in strided(tensor)]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to("cpu", copy=True)


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
    found = [_sums(*pair) for pair in zip(before, after, strict=True)]
    if broken := _broken(found):
        return OutputCheck(passed=False, bound=tolerance, reason=broken)
    check = _errors(found, tolerance, _agreement(before, after))
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


class _Sums(NamedTuple):
    """What is known of one tensor, or a part of it: over the finite numbers, but for the counts."""

    elements: int = 0
    finite: int = 0
    odd: int = 0  # where one is a number and the other is none, or another infinity
    renamed: int = 0
    worst: float = 0.0
    largest: float = 0.0
    error: float = 0.0
    size: float = 0.0
    dot: float = 0.0
    before: float = 0.0
    after: float = 0.0


def _added(one: _Sums, other: _Sums) -> _Sums:
    return _Sums(*map(operator.add, one, other))._replace(
        worst=max(one.worst, other.worst), largest=max(one.largest, other.largest)
    )


def _sums(old: torch.Tensor, new: torch.Tensor) -> _Sums:
    named = old.dtype in _NAMES and new.dtype in _NAMES
    parts = zip(*(torch.split(one.reshape(-1), _ELEMENTS) for one in (old, new)), strict=True)
    found = (_part(a.double(), b.double(), named=named) for a, b in parts)
    return functools.reduce(_added, found, _Sums())


def _part(old: torch.Tensor, new: torch.Tensor, *, named: bool) -> _Sums:
    there = old.isfinite()
    same = (old == new) | (old.isnan() & new.isnan())
    counts = {
        "elements": old.numel(),
        "finite": int(there.sum()),
        "odd": int((torch.where(there, ~new.isfinite(), ~same)).sum()),
        "renamed": int((~same).sum()) if named else 0,
    }
    if not counts["finite"]:
        return _Sums(**counts)
    if counts["finite"] < counts["elements"]:
        old, new = old[there], new[there]
    error, size = (new - old).abs(), old.abs()
    return _Sums(
        **counts,
        worst=float(error.max()),
        largest=float(size.max()),
        error=float(error.sum()),
        size=float(size.sum()),
        dot=float(old @ new),
        before=float(old @ old),
        after=float(new @ new),
    )


def _broken(found: Sequence[_Sums]) -> str:
    """Tell where one is a number and the other is none; an infinity of both (a mask) is alike."""
    if any(one.elements for one in found) and not any(one.finite for one in found):
        return "The original's output holds no finite number, so nothing can be compared."
    if any(one.odd for one in found):
        return "Its output holds NaN or infinities where the original's does not."
    return ""


def _errors(found: Sequence[_Sums], tolerance: float, agreement: float | None) -> OutputCheck:
    every = functools.reduce(_added, found, _Sums())
    if not every.elements:
        return OutputCheck(passed=True, bound=tolerance)
    relative = max(_relative(one, least=_ROUNDING * every.largest) for one in found)
    reason = "" if relative <= tolerance else DIFFERS
    if every.renamed:
        reason = f"{every.renamed} whole numbers (labels, indices) of its output changed."
    norms = math.sqrt(every.before) * math.sqrt(every.after)
    return OutputCheck(
        passed=not reason,
        bound=tolerance,
        max_absolute=every.worst,
        mean_absolute=every.error / every.finite,
        max_relative=relative if math.isfinite(relative) else None,
        mean_relative=every.error / every.size if every.size else None,
        cosine=min(every.dot / norms, 1.0) if norms else None,  # which rounding may exceed
        argmax_agreement=agreement,
        reason=reason,
    )


def _relative(one: _Sums, *, least: float) -> float:
    """Return a tensor's largest error relative to its largest magnitude, or to the `least`."""
    largest = max(one.largest, least)
    return one.worst / largest if largest else (0.0 if one.worst == 0 else math.inf)


def _agreement(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float | None:
    """Return the share of positions with the same largest entry, of the first output with one."""
    for old, new in zip(before, after, strict=True):
        if old.dim() > 1 and old.shape[-1] > 1 and old.numel():
            return float((_first(old) == _first(new)).double().mean())
    return None


def _first(tensor: torch.Tensor) -> torch.Tensor:
    """Return where the largest entry of each row is; one-byte types have no argmax on the CPU."""
    return (tensor.float() if tensor.itemsize == 1 else tensor).argmax(-1)


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
