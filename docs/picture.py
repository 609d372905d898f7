"""Draws docs/demo.svg, the README's picture, from a saved record."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from rich.console import Console

import torchgauge as tg
from torchgauge.report.console import WIDTH, view


def main() -> None:
    """Read a record and write the picture of its summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path, nargs="?", default=Path("docs/demo.svg"))
    options = parser.parse_args()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(view(tg.load(options.record)))
    title = "torchgauge profile examples/resnet18.py:resnet18"
    options.picture.write_text(console.export_svg(title=title))


if __name__ == "__main__":
    main()
