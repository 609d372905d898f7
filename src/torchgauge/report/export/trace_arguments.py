"""Arguments of a trace's spans, under the names and in the units in which torch writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from torchgauge.records.trace.events import ABSENT, Coded, Events, Rows

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
        "split_in": "In split size",
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
    """The arguments from one table of the events; absent values are left out."""

    def __init__(self, events: Events, kind: str) -> None:
        table = getattr(events, kind)
        self._index_of_row = np.full(len(events), ABSENT, np.intp)
        self._index_of_row[table.row] = np.arange(len(table.row))
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

    def fill(self, rows: Rows, args: list[dict[str, Any]]) -> None:
        """Fill in the known arguments of these spans."""
        indices = self._index_of_row[rows]
        present = np.flatnonzero(indices != ABSENT)
        for key, column, values in self._columns:
            cells = column[indices[present]]
            is_known = cells != ABSENT
            if cells.ndim > 1:
                is_known = is_known.all(axis=1)
            elif cells.dtype.kind == "f":
                is_known = ~np.isnan(cells)
            known_cells = cells[is_known].tolist()
            for index, cell in zip(present[is_known].tolist(), known_cells, strict=True):
                args[index][key] = cell if values is None else values[cell]
