"""A context that is longer than the positions that any layer attends to."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    cells = () if evidence.generation is None else evidence.generation.done
    longer = [
        (cell.prompt + cell.new_tokens, cell.cache.window, cell)
        for cell in cells
        if cell.cache is not None
        and cell.cache.window is not None
        and cell.prompt + cell.new_tokens > cell.cache.window
    ]
    if not longer:
        return
    context, window, cell = max(longer, key=lambda entry: entry[0])
    yield Finding(
        id="beyond-window",
        severity="info",
        title=f"No layer attends further back than {window:,} positions",
        evidence=f"A call {cell.label} reaches {context:,}: the first {context - window:,} act "
        "through later positions alone. Neither its steps nor its cache grow beyond the window.",
        remedy="If the model is to see the whole prompt: a model with longer attention.",
    )


RULE = Rule(
    "beyond-window",
    _find,
    source="https://huggingface.co/docs/transformers/kv_cache",
)
