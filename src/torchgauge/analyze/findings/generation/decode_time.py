"""The time of the decode steps of a call."""

from __future__ import annotations

from torchgauge.records.generation.cell import GenerationCell


def decode_count(cell: GenerationCell) -> int:
    """Return the steps after the first token of the call that has most."""
    return max((len(call.forwards.indices("decode")) for call in cell.timed_calls), default=0)


def forward_time(cell: GenerationCell) -> float:
    """Return the seconds that the decode forwards of a call take; 0 without any."""
    return cell.step.value * decode_count(cell) if cell.step is not None else 0.0


def shape(cell: GenerationCell) -> str:
    """Return the cell in words, for the middle of a sentence."""
    return f"with {cell.label}"
