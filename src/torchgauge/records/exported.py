"""The output methods that records of runs share, by `records/rendering.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from torchgauge.records import rendering
from torchgauge.records.record import MeasurementWarning, Record

Csv = Literal[
    "figures", "layers", "operators", "kernels", "categories", "lines", "tensors", "requests"
]  # fmt: skip
Weight = Literal["time", "host", "device", "flops", "bytes", "memory"]
WEIGHTS: tuple[Weight, ...] = get_args(Weight)


class Exported(Record, frozen=True, kw_only=True):
    """The base of records that other tools' formats can show.

    A `to_…` returns the text and writes it to `path`, whole or not at all, if one is given; it
    raises InputError `output-unwritable`, and `no-tree` or `figure-absent` for what the record does
    not hold. `complete` is of those that can be `interrupted`, `all_warnings` of those with
    `warnings`.
    """

    @property
    def complete(self: Any) -> bool:
        """True where nothing failed and nothing was interrupted."""
        return not self.interrupted and not any(warning.failed for warning in self.all_warnings)

    @property
    def all_warnings(self: Any) -> tuple[MeasurementWarning, ...]:
        """The record's own warnings and those of its parts."""
        own: tuple[MeasurementWarning, ...] = self.warnings
        return own

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON, whole or not at all, and return the path.

        Raises InputError `output-unwritable`.
        """
        return rendering.save(self, Path(path))

    def summary(self) -> dict[str, float | int | str | None]:
        """Return the flat view with units in its keys (`latency_p50_ms`), for CSV and loggers."""
        return rendering.summary(self)

    def to_csv(self, path: str | Path | None = None, table: Csv = "figures") -> str:
        """Return the figures as one row of CSV, or a table of tree, lines or requests, in SI."""
        return rendering.text(self, "csv", path, table=table)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the page of the record, one file without a network.

        A count and the ranks of a job have none: InputError `format-unfit`.
        """
        return rendering.text(self, "html", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the headline figures and top layers as Markdown, for a pull request's comment."""
        return rendering.text(self, "markdown", path)

    def to_openmetrics(self, path: str | Path | None = None) -> str:
        """Return the figures as OpenMetrics text, which Prometheus reads."""
        return rendering.text(self, "openmetrics", path)

    def to_speedscope(self, path: str | Path | None = None) -> str:
        """Return the tree as a file of https://www.speedscope.app: time, FLOPs, bytes, memory."""
        return rendering.text(self, "speedscope", path)

    def to_folded(self, path: str | Path | None = None, weight: Weight = "time") -> str:
        """Return the tree as folded stacks, the input of flame graphs.

        Weights are whole numbers: ns ("host", "device"; "time" is the device's where it worked),
        FLOP, bytes of compulsory traffic, or bytes allocated ("memory").
        """
        return rendering.text(self, "folded", path, weight=weight)
