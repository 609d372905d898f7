"""A sweep as Markdown, for a pull request or a report."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.model.sweep import Sweep
from torchgauge.report import sweep_words as words
from torchgauge.report.markdown_text import Markdown, code, items, markdown, table, text, together

NOTHING = "–"
COLUMNS = ("median", "±", "p99", "per second", "memory")


def blocks(sweep: Sweep) -> list[Markdown]:
    """Return the parts of the Markdown, a heading first."""
    facts = dict(words.facts(sweep))
    target = code(facts.pop("target"))
    head = markdown("{}<br>{}", target, together(" · ", facts.values()))
    return [
        markdown("### {}, swept", code(words.title(sweep))),
        head,
        _cells(sweep),
        text(words.legend(sweep)),
        *_listed("Best", [(one.metric, str(one)) for one in words.best(sweep)]),
        *_listed("Without figures", words.reasons(sweep)),
        *_scaling(sweep),
        *_listed("Warnings", [(one.id, one.message) for one in sweep.warnings]),
    ]


def _cells(sweep: Sweep) -> Markdown:
    names = ("cell", "latency:", "±:", "p99:", f"{words.rate(sweep)}/s:", "peak memory:", "")
    rows = []
    for place, cell in enumerate(sweep.cells):
        told = words.figures(cell)
        figures = [told.get(name, NOTHING) for name in COLUMNS]
        mark = " ".join(words.marks(sweep, place)).strip() if cell.done else cell.status
        rows.append([words.named(sweep, cell.settings) or "as given", *figures, mark])
    return table(names, rows)


def _scaling(sweep: Sweep) -> Iterator[Markdown]:
    for found in sweep.scaling:
        row = words.named(sweep, found.settings)
        label = f": {row}" if row else ""
        yield from _listed(f"Scaling with the batch (estimated){label}", list(words.scaling(found)))


def _listed(title: str, pairs: list[tuple[str, str]]) -> list[Markdown]:
    lines = [markdown("{}: {}", name, said) for name, said in pairs]
    return [markdown("**{}**", title), items(lines)] if lines else []
