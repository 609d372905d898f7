"""Python's own time by line of the user's source."""

from __future__ import annotations

from torchgauge.records.record import Record


class LineTime(Record, frozen=True, kw_only=True):
    """Host time between operators that a line took in one step, in the calls of one layer.

    `time` in seconds and its `share` of the step are estimated from `samples`. `layer` is the
    qualified name, that of the model for its own lines; `source` is the line's text.
    """

    file: str
    line: int
    layer: str
    time: float
    share: float
    samples: int
    source: str = ""
