"""Figures by name, as Profiler and ModelProfiler return them: a dict that prints as a table."""

from __future__ import annotations

from typing import Any

from torchgauge import randomness


class Figures(dict[str, Any]):
    """A dict of figures: printed it has one in a line, a notebook shows it as a table.

    Its `repr` is one line of the first of them.
    """

    def __str__(self) -> str:
        from torchgauge.report.console import blocks
        from torchgauge.report.console.plain import plain

        with randomness.preserved_state():
            return plain(lambda width: blocks.view(self._document(), width))

    def __repr__(self) -> str:
        from torchgauge.report.console.line import line

        return line("Figures", (f"{label} {text}" for label, text in self._document().facts.pairs))

    def __rich__(self) -> Any:
        from torchgauge.report.console.text import Text

        return Text.of_lines(str(self))

    def _repr_html_(self) -> str:
        from torchgauge.report.notebook.notebook import fragment

        return fragment(self._document())

    def _document(self) -> Any:
        from torchgauge.report import parts
        from torchgauge.report.content.document import Document

        return Document("", facts=parts.fields(self))
