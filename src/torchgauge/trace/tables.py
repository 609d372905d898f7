"""A sparse table in the making: arguments of one kind become columns beside their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from torchgauge.model.events import Rows
from torchgauge.trace.arguments import Arguments, Decoder, column_for
from torchgauge.trace.columns import Parts

A = TypeVar("A", bound=Arguments)


class Table(Generic[A]):
    """One column per field of the arguments, but for those named in `without`."""

    def __init__(self, kind: type[A], *, without: Collection[str] = ()) -> None:
        self.decode = Decoder(kind)
        self._row = Parts(np.intp)
        self._columns = {
            field.name: column_for(field.default)
            for field in msgspec.structs.fields(kind)
            if field.name not in without
        }

    def append(self, found: Sequence[A], row: Rows) -> None:
        """Append the arguments of these rows."""
        self._row.append(row)
        for name, column in self._columns.items():
            column.add(map(attrgetter(name), found), len(found))

    def finish(self) -> dict[str, Any]:
        """Return the columns by name, `row` among them."""
        columns = {name: column.finish() for name, column in self._columns.items()}
        return {"row": self._row.finish(), **columns}
