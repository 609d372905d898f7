"""Stacks and frames of a memory snapshot in words."""

from __future__ import annotations

from torchgauge.records.snapshot import Frame, Stack
from torchgauge.report.content.document import Detailed
from torchgauge.visible import one_line


def stack_text(stack: Stack | None) -> Detailed:
    """Return a stack as text: the innermost frame, then its callers."""
    if stack is None:
        return Detailed("", "before the first event")
    if not stack.frames:
        return Detailed("", "without a stack")
    first, *callers = map(frame_text, stack.frames)
    return Detailed(first, "".join(f" ← {caller}" for caller in callers))


def frame_text(frame: Frame) -> str:
    """Return a frame as file:line and function; C++ has no lines."""
    file = one_line(frame.file).rstrip("/").rsplit("/", 1)[-1]
    place = f"{file}:{frame.line}" if frame.line > 0 else file
    return f"{place} {one_line(frame.name)}".strip()
