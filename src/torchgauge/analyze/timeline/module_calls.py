"""Layers of a recorded trace: by our own ranges, else torch's `nn.Module: Linear_0` calls."""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, own_range
from torchgauge.analyze.timeline.call_tree import MODEL, CallTree, NamedModule
from torchgauge.readers.kineto.categories import MODULE_CALL, PYTHON
from torchgauge.readers.nesting import ROUNDING, nest
from torchgauge.records.trace.events import ABSENT, Events, Rows


class Modules:
    """The modules that were called, numbered by name: `number` is that of a span's name.

    A trace that we wrote has paths and classes. A recording of ours that somebody else wrote has
    numbers alone, of which 0 is the model. torch names a class and counts its instances. The model
    is the one that was called by no other, where there is one.

    `calls` are the rows that calls are in where a name alone does not say it: what a user marks may
    be named as a layer.
    """

    def __init__(self, events: Events, name: str) -> None:
        classes = _written(events)
        own_numbers = {
            text: own_range(text) for text in events.name.values if own_range(text) != NONE
        }
        self.calls: Rows | None = None
        self.have_paths = bool(classes)
        self.are_ours = self.have_paths or bool(own_numbers)
        if classes:
            self.calls = _rows_written(events)
            self._numbers = _numbered(events, self.calls)
        else:
            self._numbers = own_numbers or _numbered(events, _rows_of_torch(events))
        table = [NamedModule(("",), "")] * (max(self._numbers.values(), default=MODEL) + 1)
        for text, number in self._numbers.items():
            label = text.removeprefix(MODULE_CALL).strip()
            path = label if number != MODEL else ""
            table[number] = NamedModule((path,), classes.get(text, label.rpartition("_")[0]))
            if number == MODEL and not own_numbers:
                name = label
        self.tree = CallTree(table, name)

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        """Return the module's number, NONE for names that do not belong to a module."""
        return self._numbers.get(name, NONE)


def _rows_written(events: Events) -> Rows:
    table = events.operators
    rows: Rows = table.row[table.layer_class.codes != ABSENT]
    return rows


def _written(events: Events) -> dict[str, str]:
    """Return the classes of the layers by their paths, of a trace that we wrote."""
    table = events.operators
    called = np.flatnonzero(table.layer_class.codes != ABSENT)
    names = events.name.take(table.row[called])
    classes = table.layer_class.take(called)
    pairs = set(zip(names.codes.tolist(), classes.codes.tolist(), strict=True))
    return {names.values[name]: classes.values[code] for name, code in sorted(pairs)}


def _rows_of_torch(events: Events) -> Rows:
    return np.flatnonzero(
        events.category.where(lambda name: name == PYTHON)
        & events.name.where(lambda name: name.startswith(MODULE_CALL))
    )


def _numbered(events: Events, rows: Rows) -> dict[str, int]:
    """Return the numbers of the modules whose calls these are, in the order of their names."""
    outer, inner = _callers(events, rows)
    models = outer - inner
    first = models if len(models) == 1 else set[str]()
    submodules = sorted((outer | inner) - first)
    return dict.fromkeys(first, MODEL) | {text: number for number, text in enumerate(submodules, 1)}


def _callers(events: Events, rows: Rows) -> tuple[set[str], set[str]]:
    """Return the names of calls inside no other call, and of those inside one."""
    start, duration = events.start[rows], events.duration[rows]
    parent = nest(start, duration, events.thread.codes[rows], tolerance=ROUNDING).parent
    names = np.array([str(events.name[row]) for row in rows.tolist()], dtype=object)
    return set(names[parent == NONE]), set(names[parent != NONE])
