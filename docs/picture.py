"""Draws docs/demo.svg, the README's picture, from a saved record."""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich.console import Console

import torchgauge as tg
from torchgauge.report.console import view
from torchgauge.report.plain import WIDTH


def main() -> None:
    """Read a record and write the picture of its summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path, nargs="?", default=Path("docs/demo.svg"))
    options = parser.parse_args()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(view(tg.load(options.record), width=WIDTH))
    title = "torchgauge profile examples/resnet18.py:resnet18"
    picture = console.export_svg(title=title)
    # The reader's own monospaced font will do: a picture must not load one from the network.
    options.picture.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main()
