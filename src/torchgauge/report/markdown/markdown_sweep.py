"""A sweep as Markdown, for a pull request or a report."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.sweep import Sweep
from torchgauge.report.content import sweep_words as words
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    items,
    join,
    markdown,
    table,
    text,
    truncated_document,
)

EMPTY_CELL = "–"
COLUMNS = ("median", "±", "p99", "per second", "memory")


def render(sweep: Sweep) -> str:
    """Return the Markdown."""
    return truncated_document(blocks(sweep))


def blocks(sweep: Sweep) -> list[Markdown]:
    """Return the parts of the Markdown, a heading first."""
    facts = dict(words.facts(sweep))
    target = code(facts.pop("target"))
    head = markdown("{}<br>{}", target, join(" · ", facts.values()))
    return [
        markdown("### {}, swept", code(words.title(sweep))),
        head,
        _cells(sweep),
        text(words.legend(sweep)),
        *_listed("Best", [(best.metric, str(best)) for best in words.best(sweep)]),
        *_listed("Without figures", words.reasons(sweep)),
        *_scaling(sweep),
        *_listed("Warnings", [(warning.id, warning.message) for warning in sweep.warnings]),
    ]


def _cells(sweep: Sweep) -> Markdown:
    names = ("cell", "latency:", "±:", "p99:", f"{words.rate(sweep)}/s:", "peak memory:", "")
    rows = []
    for index, cell in enumerate(sweep.cells):
        texts = words.figures(cell)
        figures = [texts.get(name, EMPTY_CELL) for name in COLUMNS]
        mark = " ".join(words.marks(sweep, index)).strip() if cell.done else cell.status
        rows.append([words.named(sweep, cell.settings) or "as given", *figures, mark])
    return table(names, rows)


def _scaling(sweep: Sweep) -> Iterator[Markdown]:
    for scaling in sweep.scaling:
        row = words.named(sweep, scaling.settings)
        label = f": {row}" if row else ""
        title = f"Scaling with the batch (estimated){label}"
        yield from _listed(title, list(words.scaling(scaling)))


def _listed(title: str, pairs: list[tuple[str, str]]) -> list[Markdown]:
    lines = [markdown("{}: {}", name, value) for name, value in pairs]
    return [markdown("**{}**", title), items(lines)] if lines else []
