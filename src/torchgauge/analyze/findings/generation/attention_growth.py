"""Decode steps that take longer with each position that they attend to."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import decode_count
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell, generation = evidence.generation_cell, evidence.generation
    if cell is None or generation is None or cell.tpot is None or cell.cache_kind == "none":
        return
    fit = generation.fit("decode", cell.cache_kind)
    growth = None if fit is None else fit.per_context
    if fit is None or growth is None or growth.interval is None or growth.interval.low <= 0:
        return
    sequences, steps = cell.batch * cell.beams, decode_count(cell)
    bounded = fit.window or float("inf")
    middle, last = (min(cell.prompt + count, bounded) for count in (steps / 2, steps))
    time = evidence.within(growth.value * sequences * middle * steps)
    low, high = growth.interval.low * sequences, growth.interval.high * sequences
    yield Finding(
        id="attention-growth",
        severity=severity(share(time, evidence.time)),
        title=f"Attention grows {units.time(growth.value * sequences, 2)} a position",
        evidence=f"With {sequences} {'sequences' if sequences > 1 else 'sequence'} "
        f"({units.times(low, high, 2)} by the fit of {len(fit.cells)} points): "
        f"{units.time(growth.value * sequences * last, 3)} of a step of "
        f"{units.time(cell.tpot.value, 3)} at {last:,.0f} positions.",
        remedy="Fused attention (attn_implementation='sdpa' or 'flash_attention_2'), fewer heads "
        "of keys (GQA), a cache in fewer bytes, or a window.",
        time=time,
        worth=time,
    )


RULE = Rule(
    "attention-growth",
    _find,
    source="https://huggingface.co/docs/transformers/attention_interface",
)
