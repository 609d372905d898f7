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
        values = events.name.values
        self._numbers = {text: own_range(text) for text in values if own_range(text) != NONE}
        self.are_ours = bool(self._numbers)
        if self.are_ours:
            kinds = [""] * (max(self._numbers.values()) + 1)
            labels = [f"tg#{number}" for number in range(len(kinds))]
        else:
            labels, kinds = self._named(events, name)
        labels[MODEL] = labels[MODEL] if labels[MODEL] != "tg#0" else name
        table = [Named((label,), kind) for label, kind in zip(labels, kinds, strict=True)]
        table[MODEL] = Named(("",), kinds[MODEL])
        self.tree = CallTree(table, labels[MODEL])

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        """Return the module's number, NONE for names that are no module's."""
        return self._numbers.get(name, NONE)

    def _named(self, events: Events, name: str) -> tuple[list[str], list[str]]:
        outer, inner = _callers(events)
        models = outer - inner
        labels = [name, *sorted(outer | inner)]
        if len(models) == 1:
            labels.remove(next(iter(models)))
            labels[MODEL] = next(iter(models))
        self._numbers = {label: number for number, label in enumerate(labels) if label != name}
        texts = [label.removeprefix(MODULE_CALL).strip() for label in labels]
        return texts, [text.rpartition("_")[0] for text in texts]


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
