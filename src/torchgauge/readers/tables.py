"""A sparse table in the making: arguments of one kind become columns beside their rows."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from torchgauge.readers.columns import (
    Column,
    Documents,
    Fractions,
    Labels,
    Narrow,
    Numbers,
    Triples,
)
from torchgauge.readers.kineto.arguments import DEFAULTS, Arguments
from torchgauge.records.trace.events import Rows


class Table:
    """One column per field of the arguments that is named; JSON texts are columns together."""

    def __init__(self, *names: str) -> None:
        self._row = Narrow(np.int64)
        texts = tuple(name for name in names if isinstance(DEFAULTS[name], msgspec.Raw))
        self._documents = Documents(texts)
        self._texts = attrgetter(*texts) if texts else None
        self._columns = {name: _column(DEFAULTS[name]) for name in names if name not in texts}

    def append(self, arguments: Sequence[Arguments], row: Rows) -> None:
        """Append the arguments of these rows."""
        self._row.append(row)
        for name, column in self._columns.items():
            column.add(map(attrgetter(name), arguments), len(arguments))
        if self._texts:
            self._documents.add(map(self._texts, arguments), len(arguments))

    def finish(self) -> dict[str, Any]:
        """Return the columns by name, `row` among them."""
        columns = {name: column.finish() for name, column in self._columns.items()}
        return {"row": self._row.finish(), **columns, **self._documents.finish()}


def _column(default: object) -> Column:
    """Return the column for a field with this default."""
    if isinstance(default, tuple):
        return Triples()
    if default is None:
        return Labels()
    return Fractions() if isinstance(default, float) else Numbers(np.int64)
