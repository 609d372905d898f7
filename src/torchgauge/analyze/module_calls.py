"""Layers of a recording with stacks: its `nn.Module: Linear_0` calls, which say no path."""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.attribution import NONE, own_range
from torchgauge.analyze.call_tree import MODEL, CallTree, Named
from torchgauge.model.events import Events
from torchgauge.trace.categories import MODULE_CALL, PYTHON
from torchgauge.trace.nesting import ROUNDING, nest


class Modules:
    """The modules that were called, numbered by name: `number` is that of a span's name.

    A recording of ours has numbers alone, of which 0 is the model. torch names a class and counts
    its instances: the model is the one that was called by no other, where there is one.
    """

    def __init__(self, events: Events, name: str) -> None:
        ours = {text: own_range(text) for text in events.name.values if own_range(text) != NONE}
        self.are_ours = bool(ours)
        self._numbers = ours or _instances(events)
        table = [Named(("",), "")] * (max(self._numbers.values(), default=MODEL) + 1)
        for text, number in self._numbers.items():
            label = text.removeprefix(MODULE_CALL).strip()
            path = label if number != MODEL else ""
            table[number] = Named((path,), label.rpartition("_")[0])
            if number == MODEL and not ours:
                name = label
        self.tree = CallTree(table, name)

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        """Return the module's number, NONE for names that are no module's."""
        return self._numbers.get(name, NONE)


def _instances(events: Events) -> dict[str, int]:
    """Return the numbers of the modules that torch names, in the order of their names."""
    outer, inner = _callers(events)
    models = outer - inner
    first = models if len(models) == 1 else set[str]()
    rest = sorted((outer | inner) - first)
    return dict.fromkeys(first, MODEL) | {text: number for number, text in enumerate(rest, 1)}


def _callers(events: Events) -> tuple[set[str], set[str]]:
    """Return the names of calls inside no other call, and of those inside one."""
    rows = np.flatnonzero(
        events.category.where(lambda name: name == PYTHON)
        & events.name.where(lambda name: name.startswith(MODULE_CALL))
    )
    start, duration = events.start[rows], events.duration[rows]
    parent = nest(start, duration, events.thread.codes[rows], tolerance=ROUNDING).parent
    names = np.array([str(events.name[row]) for row in rows.tolist()], dtype=object)
    return set(names[parent == NONE]), set(names[parent != NONE])
