"""Reads events back from the Parquet that `parquet` wrote, column by column."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchgauge.readers.columns import Narrow
from torchgauge.readers.parquet import parquet_columns as layout
from torchgauge.readers.parquet.parquet import arrow, schema
from torchgauge.readers.parquet.parquet_columns import absent, values
from torchgauge.records.trace.events import (
    ABSENT,
    Coded,
    Collectives,
    DeviceWork,
    Events,
    Flows,
    Launches,
    MemoryEvents,
    Operators,
    PythonCalls,
    RecordedWaits,
    Rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_KINDS = {layout.INTEGER: np.int64, layout.FRACTION: np.float64, layout.TRUTH: np.bool_}
_SPARSE: dict[str, Any] = {
    "operators": Operators,
    "launches": Launches,
    "device_work": DeviceWork,
    "collectives": Collectives,
    "recorded_waits": RecordedWaits,
    "python": PythonCalls,
}


def read(path: Path, origin: layout.Origin) -> Events | None:
    """Return the events that were read from this origin, None where the file has others, or none.

    A file that is damaged or of another make or version has none. Raises MissingExtraError.
    """
    pa, pq = arrow()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return _events(file, origin)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError):
        return None
    except (MemoryError, RecursionError, OverflowError):  # sizes in a damaged file
        return None


def _events(file: pq.ParquetFile, origin: layout.Origin) -> Events | None:
    if not file.schema_arrow.equals(schema()):
        return None
    facts = layout.decoded(file.metadata.metadata)
    if [(rank.version, rank.origin) for rank in facts] != [(layout.VERSION, origin)]:
        return None
    return _Reading(file, facts[0]).events()


class _Reading:
    """The fields of tables in the making; one column of the file is held at once."""

    def __init__(self, file: pq.ParquetFile, facts: layout.Facts) -> None:
        spans, memory, arrows = facts.counts
        if min(facts.counts) < 0 or sum(facts.counts) != file.metadata.num_rows:
            raise ValueError("rows are missing")
        self._file = file
        self._facts = facts
        self._rows: dict[str, Rows] = {layout.SPANS: np.arange(spans), **self._kinds()}
        if (len(self._rows[layout.MEMORY]), len(self._rows[layout.FLOW])) != (memory, arrows):
            raise ValueError("rows have another kind")
        self._fields: defaultdict[str, dict[str, Any]] = defaultdict(dict)

    def _kinds(self) -> dict[str, Rows]:
        kind = self._coded("kind")
        return {
            table: np.flatnonzero(kind.where(lambda text, name=name: text == name))  # type: ignore[misc]
            for name, table in layout.KINDS.items()
        }

    def events(self) -> Events:
        """Read all columns."""
        for column in layout.COLUMNS:
            self._add(column)
        for table in _SPARSE:
            self._fields[table]["row"] = self._rows[table]
        for table in (layout.MEMORY, layout.FLOW):
            self._fields[table]["thread"] = self._tracks(self._fields[table]["thread"])
        spans = self._fields.pop(layout.SPANS)
        thread = Coded(self._tracks(spans.pop("thread")), tuple(self._facts.threads))
        return Events(
            **spans,
            thread=thread,
            **{name: make(**self._fields[name]) for name, make in _SPARSE.items()},
            memory=MemoryEvents(**self._fields[layout.MEMORY]),
            flows=Flows(**self._fields[layout.FLOW]),
            metadata=self._facts.metadata(),
            warnings=self._facts.warnings,
        )

    def _add(self, column: layout.Column) -> None:
        if column.form in (layout.TEXT, layout.LIST):
            coded = self._coded(column.name)
            if column.name == "collective":  # who has none has no message
                self._rows[layout.MESSAGE] = np.flatnonzero(coded.codes != ABSENT)
            ((table, field),) = column.fields
            coded_values = Coded(coded.codes, values(list(coded.values), column.form))
            self._fields[table][field] = coded_values.take(self._rows[table])
            return
        numbers = self._numbers(column)
        for table, field in column.fields:
            cells = numbers[self._rows[table]]
            if column.axis is not None:
                before = self._fields[table].get(field, np.empty((len(cells), 0), np.int64))
                cells = np.column_stack([before, cells])
            self._fields[table][field] = (
                cells if table == layout.SPANS or field == "time" else _narrow(cells)
            )

    def _numbers(self, column: layout.Column) -> np.ndarray:
        values = self._file.read([column.name], use_threads=False).column(0)
        return _filled(values, _KINDS[column.form], absent(column.form))

    def _coded(self, name: str) -> Coded[str]:
        table = self._file.read([name], use_threads=False)
        table.validate(full=True)
        chunks = table.unify_dictionaries().column(0).chunks
        codes = [_filled(chunk.indices, np.int32, ABSENT) for chunk in chunks]
        texts = chunks[0].dictionary.to_pylist() if chunks else []
        return Coded(np.concatenate([np.zeros(0, np.int32), *codes]), tuple(texts))

    def _tracks(self, codes: np.ndarray) -> np.ndarray:
        if len(codes) and not ABSENT <= codes.min() <= codes.max() < len(self._facts.threads):
            raise ValueError("a thread is unknown")
        return codes.astype(np.int32)


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return integers in as few bytes as reading a trace gives them."""
    if values.dtype != np.int64:
        return values
    narrow = Narrow(np.int64)
    narrow.append(values.reshape(-1))
    return narrow.finish().reshape(values.shape)


def _filled(column: pa.Array | pa.ChunkedArray, kind: type[np.generic], absent: Any) -> np.ndarray:
    """Return a column's values, `absent` where they are null.

    From Arrow's own bytes: its functions for that would import pandas where it is installed.
    """
    chunks = getattr(column, "chunks", [column])
    return np.concatenate(
        [np.zeros(0, kind), *(_filled_chunk(chunk, kind, absent) for chunk in chunks)]
    )


def _filled_chunk(array: pa.Array, kind: type[np.generic], absent: Any) -> np.ndarray:
    valid, data = array.buffers()
    low, high = array.offset, array.offset + len(array)
    values = _bits(data, low, high) if kind is np.bool_ else np.frombuffer(data, kind)[low:high]
    return values if valid is None else np.where(_bits(valid, low, high), values, kind(absent))


def _bits(buffer: pa.Buffer, low: int, high: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), count=high, bitorder="little")
    return bits[low:].view(np.bool_)
