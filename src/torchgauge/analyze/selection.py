"""A part of a recorded trace: which of its events are in a range of time, a step, a layer.

Every event is in a part or not, by one moment (see `recording`), so parts that share no moment
share no event. What began before a range and still runs in it is not in it.
"""

from __future__ import annotations

import dataclasses
import difflib

import numpy as np

from torchgauge.analyze.attribution import NONE
from torchgauge.analyze.recording import Recording
from torchgauge.analyze.window import window
from torchgauge.errors import InputError
from torchgauge.model.events import ABSENT, Codes, Integers, Rows

_SHOWN = 8
LONGEST = 1e9  # seconds


@dataclasses.dataclass(frozen=True)
class Part:
    """What is asked for: all that is said holds.

    `begin` and `end` in seconds from the window's begin, the end not in it. `step` is the number of
    a marked step. `layer` is a layer's path: its calls, forward and backward, with all inside them.
    """

    begin: float | None = None
    end: float | None = None
    step: int | None = None
    layer: str | None = None

    def __post_init__(self) -> None:
        """Raise InputError `option-invalid` for times that no trace has."""
        for time in (self.begin, self.end):
            if time is not None and not abs(time) <= LONGEST:
                raise InputError(
                    f"{time:.6g} s is no time of a trace.",
                    id="option-invalid",
                    cause="It counts from the trace's begin.",
                    remedy="Choose a moment before its end.",
                )


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """Which spans, allocations and ends of arrows are kept, as masks in the order of the events.

    An arrow is kept where all of its ends are: each where the span is that begins there.
    """

    spans: np.ndarray
    memory: np.ndarray
    flows: np.ndarray
    _chosen: _Chosen

    def moments(self, time: Integers, thread: Codes) -> np.ndarray:
        """Return which moments (ns, on these threads of the events) are in the part."""
        return self._chosen.moments(time, thread)


def select(of: Recording, part: Part) -> Selection:
    """Return what of the recording is in the part.

    Raises InputError `step-unknown`, `layer-unknown`, and `part-empty` where nothing is in it.
    """
    chosen = _Chosen(of, part)
    spans = chosen.where(of.time, of.span)
    if not spans.any():
        raise InputError(
            "Nothing of the trace is in this part of it.",
            id="part-empty",
            cause=f"{len(spans):,} events were recorded in {_seconds(of):.6g} s.",
            remedy="Choose another range, step or layer.",
        )
    memory, flows = of.events.memory, of.events.flows
    arrows = _arrows(of, spans, chosen.moments(flows.time, flows.thread))
    return Selection(spans, chosen.moments(memory.time, memory.thread), arrows, chosen)


def _seconds(of: Recording) -> float:
    begin, end = window(of.events)
    return (end - begin) * 1e-9


class _Chosen:
    """Answers about moments and the host's spans around them."""

    def __init__(self, of: Recording, part: Part) -> None:
        self._of = of
        self._part = part
        self._origin = window(of.events)[0]
        self._layers = None if part.layer is None else _layers(of, part.layer)
        if part.step is not None:
            _check_step(of, part.step)

    def where(self, time: Integers, span: Rows) -> np.ndarray:
        """Return which are in the part, by the time of each and the span that it is in."""
        part, kept = self._part, np.ones(len(time), np.bool_)
        if part.begin is not None:
            kept &= time >= self._origin + round(part.begin * 1e9)
        if part.end is not None:
            kept &= time < self._origin + round(part.end * 1e9)
        if part.step is not None:
            kept &= self._of.step(time) == part.step
        if self._layers is not None:
            kept &= np.isin(self._of.layer(span), self._layers)
        return kept

    def moments(self, time: Integers, thread: Codes) -> np.ndarray:
        """Return which moments of the host are in the part."""
        around = np.full(len(time), NONE)
        if self._layers is not None:
            around = self._of.around(time, thread)
        return self.where(time, around)


def _layers(of: Recording, path: str) -> list[int]:
    """Return the numbers of the layers at the path, and of all that are called in them."""
    if not len(of.modules):
        raise InputError(
            "The trace names no layers.",
            id="layer-unknown",
            cause="It was recorded without stacks and without torchgauge.",
            remedy="Choose a range of time or a step.",
        )
    layers = of.modules.tree.layers
    within = [number for number, one in enumerate(layers) if path == (one.path or one.name)]
    if not within:
        known = sorted({one.path or one.name for one in layers})
        near = difflib.get_close_matches(path, known, _SHOWN) or known[:_SHOWN]
        raise InputError(
            f"The trace has no layer '{path}'.",
            id="layer-unknown",
            cause=f"It has {len(known):,}, such as {', '.join(near)}.",
            remedy="Choose one of the tree's: torchgauge trace FILE --depth 9.",
        )
    for number, one in enumerate(layers):  # a parent comes before its children
        if one.parent in within and number not in within:
            within.append(number)
    return within


def _check_step(of: Recording, step: int) -> None:
    known = sorted(set(of.step(of.time[of.spans.row]).tolist()) - {ABSENT})
    if step not in known:
        raise InputError(
            f"The trace marks no step {step}.",
            id="step-unknown",
            cause=f"It marks {', '.join(map(str, known))}." if known else "It marks none.",
            remedy="Choose one of these." if known else "Choose a range of time.",
        )


def _arrows(of: Recording, spans: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Return which ends of arrows are kept; `moments` decide where an end stands at no span."""
    events, flows = of.events, of.events.flows
    kept = moments.copy()
    for thread in np.unique(flows.thread).tolist():
        mine, here = flows.thread == thread, events.thread.codes == thread
        ends, begins = flows.time[mine], events.start[here]
        kept[mine] = np.isin(ends, begins[spans[here]]) | (kept[mine] & ~np.isin(ends, begins))
    number = np.unique(flows.id, return_inverse=True)[1]  # however large an id is
    arrow = number * (len(flows.category.values) + 1) + flows.category.codes + 1
    kept[np.bincount(arrow, ~kept)[arrow] > 0] = False
    return kept
