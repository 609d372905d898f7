"""A sweep as Markdown, for a pull request or a report."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.model.sweep import Sweep
from torchgauge.report import sweep_words as words
from torchgauge.report.markdown_text import code, table, text

NOTHING = "–"
COLUMNS = ("median", "±", "p99", "per second", "memory")


def blocks(sweep: Sweep) -> list[str]:
    """Return the parts of the Markdown, a heading first."""
    facts = dict(words.facts(sweep))
    head = f"{code(facts.pop('target'))}<br>" + " · ".join(map(text, facts.values()))
    return [
        f"### {code(words.title(sweep))}, swept",
        head,
        _cells(sweep),
        text(words.legend(sweep)),
        *_listed("Best", [(one.metric, str(one)) for one in words.best(sweep)]),
        *_listed("Without figures", words.reasons(sweep)),
        *_scaling(sweep),
        *_listed("Warnings", [(one.id, one.message) for one in sweep.warnings]),
    ]


def _cells(sweep: Sweep) -> str:
    names = ("cell", "latency:", "±:", "p99:", f"{words.rate(sweep)}/s:", "peak memory:", "")
    rows = []
    for place, cell in enumerate(sweep.cells):
        told = words.figures(cell)
        figures = [told.get(name, NOTHING) for name in COLUMNS]
        mark = " ".join(words.marks(sweep, place)).strip() if cell.done else cell.status
        rows.append([text(words.named(sweep, cell.settings) or "as given"), *figures, mark])
    return table(names, rows)


def _scaling(sweep: Sweep) -> Iterator[str]:
    for found in sweep.scaling:
        row = words.named(sweep, found.settings)
        label = f": {row}" if row else ""
        yield from _listed(f"Scaling with the batch (estimated){label}", list(words.scaling(found)))


def _listed(title: str, pairs: list[tuple[str, str]]) -> list[str]:
    lines = [f"- {text(name)}: {text(said)}" for name, said in pairs]
    return ["\n".join([f"**{text(title)}**\n", *lines])] if lines else []
