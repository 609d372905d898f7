"""The user's frames of recorded stacks, and the category of memory they suggest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchgauge.readers.snapshot.snapshot_contents import RecordedFrame
from torchgauge.records.snapshot import Category, Frame, Stack

MAX_FRAMES = 4
# Installed code, torch's and the interpreter's own, and what has no file that one could open.
_FOREIGN = re.compile(
    r"/(site|dist)-packages/|/lib/python[\d.]+/|^torch/|/torch/(csrc|nn|optim|autograd|_\w+|utils)/"
    r"|^<(?!ipython)|^\?*$|\.(cpp|cc|c|h|hpp|cu|cuh|so)(\.\d+)*$"
)
# Files and functions that tell what an allocation is for; the first that fits a frame decides.
_RULES: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("optimizer", re.compile(r"(^|/)torch/optim/.*\n")),
    ("gradients", re.compile(r"(^|/)torch/(autograd/.*|_tensor\.py)\n.*backward")),
    ("gradients", re.compile(r"\n(torch::autograd::Engine::.*|backward$)")),
    (
        "parameters",
        re.compile(
            r"(^|/)torch/nn/.*\n"
            r"(__init__|reset_parameters|_apply|to|cuda|convert|load_state_dict)$"
        ),
    ),
    ("activations", re.compile(r"(^|/)torch/nn/.*\n_call_impl$|\nforward$")),
)


class Stacks:
    """The rows of a snapshot's stacks; recorded ones that show the same frames share a row."""

    def __init__(self, recorded: Sequence[tuple[RecordedFrame, ...]]) -> None:
        self._recorded = recorded
        self._row_of: dict[int | None, int] = {}
        self._rows: dict[Stack, int] = {}
        self._kinds: dict[RecordedFrame, tuple[bool, int]] = {}

    def row(self, recorded: int | None) -> int:
        """Return the row of a recorded stack; None is one without frames."""
        row = self._row_of.get(recorded)
        if row is None:
            stack = self._stack(() if recorded is None else self._recorded[recorded])
            row = self._row_of[recorded] = self._rows.setdefault(stack, len(self._rows))
        return row

    @property
    def rows(self) -> tuple[Stack, ...]:
        """All requested rows, in order."""
        return tuple(self._rows)

    def _stack(self, recorded: Sequence[RecordedFrame]) -> Stack:
        kinds = [self._kind(frame) for frame in recorded]
        own = [frame for frame, (foreign, _) in zip(recorded, kinds, strict=True) if not foreign]
        rule = min((rule for _, rule in kinds), default=len(_RULES))
        return Stack(
            frames=tuple(
                Frame(name=frame.name, file=frame.file, line=frame.line)
                for frame in (own or recorded)[:MAX_FRAMES]
            ),
            own=bool(own),
            category=_RULES[rule][0] if rule < len(_RULES) else "unknown",
        )

    def _kind(self, frame: RecordedFrame) -> tuple[bool, int]:
        """Return whether a frame is not the user's, and the first rule that fits it."""
        kind = self._kinds.get(frame)
        if kind is None:
            text = f"{frame.file}\n{frame.name}"
            fits = (rule for rule, (_, pattern) in enumerate(_RULES) if pattern.search(text))
            kind = bool(_FOREIGN.search(frame.file)), next(fits, len(_RULES))
            self._kinds[frame] = kind
        return kind
