"""Writes a trace as Parquet: one wide table to query, with all columns of `Events`.

Absent values are null. Beside the events' own columns are the step, layer, phase and operator of
each. The file's metadata (`parquet_facts`) holds the facts of the whole trace.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchgauge.imports import required
from torchgauge.readers.parquet import parquet_columns as layout
from torchgauge.readers.parquet.parquet_columns import texts
from torchgauge.records.trace.events import ABSENT, Coded, Codes, Events, Integers, Rows

if TYPE_CHECKING:
    import pyarrow as pa

# The step, layer, phase and operator of an event.
LOCATION_COLUMNS = {
    "step": layout.INTEGER,
    "layer": layout.TEXT,
    "phase": layout.TEXT,
    "operator": layout.TEXT,
}
_AT_ONCE = 1 << 17  # rows of a group: the memory that writing takes


class Rank(NamedTuple):
    """One rank's trace as it is written.

    `locations` has a column for each of LOCATION_COLUMNS, and `selected` says which rows are
    written, both in the order of the table's rows. The facts stand in the file's metadata.
    """

    number: int | None
    events: Events
    locations: Mapping[str, Coded[str] | Integers]
    selected: np.ndarray
    facts: layout.Facts


def arrow() -> tuple[Any, Any]:
    """Return PyArrow and its Parquet; raises MissingExtraError where it is absent."""
    modules = ("pyarrow", "pyarrow.parquet")
    pyarrow, parquet = (required(name, "parquet", "Parquet", "PyArrow") for name in modules)
    return pyarrow, parquet


def schema() -> pa.Schema:
    """Return names and types of the columns."""
    pa, _ = arrow()
    text = pa.dictionary(pa.int32(), pa.string())
    types = {
        layout.INTEGER: pa.int64(),
        layout.FRACTION: pa.float64(),
        layout.TRUTH: pa.bool_(),
        layout.TEXT: text,
        layout.LIST: text,
    }
    named = {"rank": layout.INTEGER, "kind": layout.TEXT}
    for column in layout.COLUMNS:
        named[column.name] = column.form
        if column.name == "track":
            named |= {"process": layout.TEXT, "thread": layout.TEXT} | LOCATION_COLUMNS
    return pa.schema([(name, types[form]) for name, form in named.items()])


def parts(ranks: Iterable[Rank]) -> Iterator[bytes]:
    """Yield a Parquet file piece by piece; raises MissingExtraError."""
    _, pq = arrow()
    sink = _Sink()
    facts = []
    with pq.ParquetWriter(sink, schema(), compression="zstd", write_page_checksum=True) as writer:
        for rank in ranks:
            facts.append(rank.facts)
            for batch in _batches(rank):
                writer.write_batch(batch)
                yield sink.drain()
        writer.add_key_value_metadata(layout.encoded(facts))
    yield sink.drain()


class _Sink(io.RawIOBase):
    """The file that Parquet is written to; `drain` takes out the bytes written so far."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._position += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._position

    def drain(self) -> bytes:
        """Return the bytes written since the last call."""
        data, self._parts = b"".join(self._parts), []
        return data


def _batches(rank: Rank) -> Iterator[pa.RecordBatch]:
    pa, _ = arrow()
    table = _Table(rank)
    names = schema()
    for low in range(0, len(rank.selected), _AT_ONCE):
        batch = pa.record_batch(table.columns(low, min(low + _AT_ONCE, len(rank.selected))), names)
        selected = rank.selected[low : low + _AT_ONCE]
        if not selected.all():
            batch = batch.filter(pa.array(selected))
        if batch.num_rows:
            yield batch


class _Table:
    """The wide table's columns, made for some rows at once."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._rows = layout.rows_of(rank.events)
        self._texts = {
            column.name: texts(layout.field_of(rank.events, *column.fields[0]), column.form)
            for column in layout.COLUMNS
            if column.form in (layout.TEXT, layout.LIST)
        }
        threads = rank.events.thread.values
        self._processes = _Distinct(str(process) for process, _ in threads)
        self._threads = _Distinct(str(thread) for _, thread in threads)

    def columns(self, low: int, high: int) -> dict[str, pa.Array]:
        """Return all columns of these rows by name."""
        number = ABSENT if self._rank.number is None else self._rank.number
        arrays = {
            "rank": _numbers(np.full(high - low, number), layout.INTEGER),
            "kind": self._kinds(low, high),
        }
        for column in layout.COLUMNS:
            values = self._dense(column, low, high)
            if column.form in (layout.TEXT, layout.LIST):
                arrays[column.name] = _coded(values, self._texts[column.name])
            else:
                arrays[column.name] = _numbers(
                    values, column.form, self._present_rows(column, low, high)
                )
            if column.name == "track":
                arrays["process"] = _coded(self._processes.codes[values], self._processes.texts)
                arrays["thread"] = _coded(self._threads.codes[values], self._threads.texts)
        for name, location in self._rank.locations.items():
            if isinstance(location, Coded):
                arrays[name] = _coded(location.codes[low:high], location.values)
            else:
                arrays[name] = _numbers(location[low:high], layout.INTEGER)
        return arrays

    def _kinds(self, low: int, high: int) -> pa.Array:
        codes = np.zeros(high - low, np.int32)
        for code, table in enumerate(layout.KINDS.values(), 1):
            codes[self._rows[table][self._entries(table, low, high)] - low] = code
        return _coded(codes, (layout.SPAN, *layout.KINDS))

    def _dense(self, column: layout.Column, low: int, high: int) -> Any:
        """Return a value for each row: numbers, or codes."""
        kind = np.float64 if column.form == layout.FRACTION else np.int64
        values = np.full(high - low, layout.absent(column.form), kind)
        for table, field in column.fields:
            entries = self._entries(table, low, high)
            source = layout.field_of(self._rank.events, table, field)
            cells = (source.codes if isinstance(source, Coded) else source)[entries]
            cells = cells if column.axis is None else cells[:, column.axis]
            values[self._rows[table][entries] - low] = cells
        return values

    def _present_rows(self, column: layout.Column, low: int, high: int) -> Any:
        """Return the rows whose value is never absent: −1 B is what freeing one byte is."""
        if (layout.MEMORY, "size") not in column.fields:
            return slice(0)
        return self._rows[layout.MEMORY][self._entries(layout.MEMORY, low, high)] - low

    def _entries(self, table: str, low: int, high: int) -> slice:
        return slice(*np.searchsorted(self._rows[table], (low, high)).tolist())


class _Distinct:
    """Distinct texts: the code of each text, and the text of each code."""

    def __init__(self, strings: Iterable[str]) -> None:
        code_by_text: dict[str, int] = {}
        self.codes = np.array(
            [*(code_by_text.setdefault(text, len(code_by_text)) for text in strings), ABSENT]
        )
        self.texts = tuple(code_by_text)


def _numbers(values: Any, form: str, present: Any = slice(0)) -> pa.Array:
    pa, _ = arrow()
    missing = np.isnan(values) if form == layout.FRACTION else values == ABSENT
    missing[present] = False
    if form == layout.TRUTH:
        return pa.array(values == 1, mask=missing)
    return pa.array(values, mask=missing)


def _coded(codes: Rows | Codes, texts: tuple[str, ...]) -> pa.Array:
    """Return a dictionary column with only the texts that occur in it."""
    pa, _ = arrow()
    missing = codes == ABSENT
    used, inverse = np.unique(codes, return_inverse=True)
    if missing.any():
        used, inverse = used[1:], inverse - 1
    dictionary = pa.array([texts[code] for code in used.tolist()], pa.string())
    indices = pa.array(inverse.astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, dictionary)
