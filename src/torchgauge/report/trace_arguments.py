"""Arguments of a trace's spans, under the names and in the units in which torch writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from torchgauge.model.events import ABSENT, Coded, Events, Rows

KEYS = {
    "operators": {
        "external_id": "External id",
        "index": "Ev Idx",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "dims": "Input Dims",
        "strides": "Input Strides",
        "types": "Input type",
        "inputs": "Concrete Inputs",
        "modules": "Module Hierarchy",
        "layer_class": "Class",
    },
    "launches": {"external_id": "External id", "correlation": "correlation"},
    "device_work": {
        "device": "device",
        "stream": "stream",
        "correlation": "correlation",
        "external_id": "External id",
        "grid": "grid",
        "block": "block",
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "warps_per_sm": "warps per SM",
        "occupancy": "est. achieved occupancy %",
        "graph_node": "graph node id",
        "size": "bytes",
        "bandwidth": "memory bandwidth (GB/s)",
        "kind": "kind",
    },
    "collectives": {
        "name": "Collective name",
        "dtype": "dtype",
        "elements_in": "In msg nelems",
        "elements_out": "Out msg nelems",
        "group": "Process Group Name",
        "group_description": "Process Group Description",
        "group_size": "Group size",
        "ranks": "Process Group Ranks",
    },
    "python": {
        "id": "Python id",
        "parent": "Python parent id",
        "module": "Python module id",
    },
}
# The file's unit in that of the column.
_UNITS = {"bandwidth": 1e9, "occupancy": 0.01}


class Arguments:
    """The arguments that one table of the events knows, without what is absent."""

    def __init__(self, events: Events, kind: str) -> None:
        table = getattr(events, kind)
        self._place = np.full(len(events), ABSENT, np.intp)
        self._place[table.row] = np.arange(len(table.row))
        self._columns: list[tuple[str, np.ndarray, list[Any] | None]] = []
        for name, key in KEYS[kind].items():
            column = getattr(table, name)
            if isinstance(column, Coded):
                # Each distinct list of shapes is encoded once.
                values = [*(msgspec.Raw(msgspec.json.encode(value)) for value in column.values)]
                self._columns.append((key, column.codes, values))
            else:
                self._columns.append(
                    (key, column / _UNITS[name] if name in _UNITS else column, None)
                )

    def put(self, rows: Rows, args: list[dict[str, Any]]) -> None:
        """Put what is known of these spans into their arguments."""
        place = self._place[rows]
        having = np.flatnonzero(place != ABSENT)
        for key, column, values in self._columns:
            found = column[place[having]]
            known = found != ABSENT
            if found.ndim > 1:
                known = known.all(axis=1)
            elif found.dtype.kind == "f":
                known = ~np.isnan(found)
            for entry, value in zip(having[known].tolist(), found[known].tolist(), strict=True):
                args[entry][key] = value if values is None else values[value]
