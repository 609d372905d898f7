"""The one seam by which a record finds its renderer, by dotted name.

Records sit below reports and must not import them; a renderer is `render(record) -> str`, with
options where the format has any.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torchgauge.files import write_atomically

RENDERERS = {
    "comparison": "torchgauge.report.comparison",
    "console": "torchgauge.report.console",
    "count": "torchgauge.report.count",
    "csv": "torchgauge.report.csv",
    "doctor": "torchgauge.report.doctor",
    "folded": "torchgauge.report.folded",
    "html": "torchgauge.report.html",
    "json": "torchgauge.report.json",
    "loop": "torchgauge.report.loop",
    "markdown": "torchgauge.report.markdown",
    "notebook": "torchgauge.report.notebook",
    "openmetrics": "torchgauge.report.openmetrics",
    "regressions": "torchgauge.report.regressions",
    "ranks": "torchgauge.report.ranks",
    "speedscope": "torchgauge.report.speedscope",
    "sweep": "torchgauge.report.sweep",
}


def text(record: object, form: str, path: str | Path | None = None, **options: Any) -> str:
    """Return `record` rendered as `form`, and write it to `path` if one is given."""
    rendered: str = importlib.import_module(RENDERERS[form]).render(record, **options)
    if path is not None:
        write_atomically(Path(path), rendered.encode())
    return rendered


def trace(recorded: object, path: Path) -> Path:
    """Write a recording (`analyze.named_spans`) as a Chrome trace, and return the path."""
    written: Path = importlib.import_module("torchgauge.report.chrome_trace").write(recorded, path)
    return written
