"""The one seam by which a record finds its renderer, by dotted name.

Records sit below reports and must not import them; a renderer is `render(record) -> str`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from torchgauge.files import write_atomically

RENDERERS = {
    "console": "torchgauge.report.console",
    "count": "torchgauge.report.count",
    "csv": "torchgauge.report.csv",
    "doctor": "torchgauge.report.doctor",
    "json": "torchgauge.report.json",
    "notebook": "torchgauge.report.notebook",
}


def text(record: object, form: str, path: str | Path | None = None) -> str:
    """Return `record` rendered as `form`, and write it to `path` if one is given."""
    rendered: str = importlib.import_module(RENDERERS[form]).render(record)
    if path is not None:
        write_atomically(Path(path), rendered.encode())
    return rendered
