"""Errors of a changed model's outputs relative to the original's."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchgauge.records.advice import OutputCheck
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.tensors import strided

DIFFERS = "Its output differs by more than is allowed."

# Of the largest value among all outputs: what is smaller is rounding, and has no scale of its own.
_ROUNDING = torch.finfo(torch.float32).eps
# Labels and indices: neighbouring values mean different things. uint8 is mostly a picture.
_NAMES = (torch.int16, torch.int32, torch.int64, torch.bool)
# Compared in float64, so many elements at a time: logits may fill the memory as they are.
_ELEMENTS = 2**22


def host_copies(outputs: Any) -> list[torch.Tensor]:
    """Return copies of the outputs' tensors on the host, in a fixed order."""
    tensors = [tensor.detach() for tensor in tensors_in(outputs, repeated=True)]
    return [_plain(part) for tensor in tensors for part in strided(tensor)]


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
    """Compare tensors of `host_copies`; of an output of `times` as many samples the first ones.

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
    sums = [_sums(*pair) for pair in zip(before, after, strict=True)]
    if broken := _non_finite(sums):
        return OutputCheck(passed=False, bound=tolerance, reason=broken)
    check = _errors(sums, tolerance, _agreement(before, after))
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
    """Sums over the finite elements of a tensor or a chunk of it; counts include all elements."""

    elements: int = 0
    finite: int = 0
    odd: int = 0  # finite on one side only, or different infinities
    renamed: int = 0
    worst: float = 0.0
    largest: float = 0.0
    error: float = 0.0
    size: float = 0.0
    dot: float = 0.0
    before: float = 0.0
    after: float = 0.0


def _sum_of(sums: _Sums, other: _Sums) -> _Sums:
    return _Sums(*map(operator.add, sums, other))._replace(
        worst=max(sums.worst, other.worst), largest=max(sums.largest, other.largest)
    )


def _sums(old: torch.Tensor, new: torch.Tensor) -> _Sums:
    named = old.dtype in _NAMES and new.dtype in _NAMES
    parts = zip(*(torch.split(tensor.reshape(-1), _ELEMENTS) for tensor in (old, new)), strict=True)
    chunk_sums = (_chunk_sums(a.double(), b.double(), named=named) for a, b in parts)
    return functools.reduce(_sum_of, chunk_sums, _Sums())


def _chunk_sums(old: torch.Tensor, new: torch.Tensor, *, named: bool) -> _Sums:
    finite = old.isfinite()
    equal = (old == new) | (old.isnan() & new.isnan())
    counts = {
        "elements": old.numel(),
        "finite": int(finite.sum()),
        "odd": int((torch.where(finite, ~new.isfinite(), ~equal)).sum()),
        "renamed": int((~equal).sum()) if named else 0,
    }
    if not counts["finite"]:
        return _Sums(**counts)
    if counts["finite"] < counts["elements"]:
        old, new = old[finite], new[finite]
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


def _non_finite(sums: Sequence[_Sums]) -> str:
    """Say where only one side is finite; the same infinity on both sides (a mask) is fine."""
    if any(tensor_sums.elements for tensor_sums in sums) and not any(
        tensor_sums.finite for tensor_sums in sums
    ):
        return "The original's output holds no finite number, so nothing can be compared."
    if any(tensor_sums.odd for tensor_sums in sums):
        return "Its output holds NaN or infinities where the original's does not."
    return ""


def _errors(sums: Sequence[_Sums], tolerance: float, agreement: float | None) -> OutputCheck:
    total = functools.reduce(_sum_of, sums, _Sums())
    if not total.elements:
        return OutputCheck(passed=True, bound=tolerance)
    relative = max(_relative(tensor_sums, floor=_ROUNDING * total.largest) for tensor_sums in sums)
    reason = "" if relative <= tolerance else DIFFERS
    if total.renamed:
        reason = f"{total.renamed} whole numbers (labels, indices) of its output changed."
    norms = math.sqrt(total.before) * math.sqrt(total.after)
    return OutputCheck(
        passed=not reason,
        bound=tolerance,
        max_absolute=total.worst,
        mean_absolute=total.error / total.finite,
        max_relative=relative if math.isfinite(relative) else None,
        mean_relative=total.error / total.size if total.size else None,
        cosine=min(total.dot / norms, 1.0) if norms else None,  # which rounding may exceed
        argmax_agreement=agreement,
        reason=reason,
    )


def _relative(sums: _Sums, *, floor: float) -> float:
    """Return a tensor's largest error relative to its largest magnitude, `floor` at least."""
    largest = max(sums.largest, floor)
    return sums.worst / largest if largest else (0.0 if sums.worst == 0 else math.inf)


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
