"""An assistant whose drafts are accepted too rarely to save time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation


def _find(evidence: Evidence) -> Iterator[Finding]:
    generation = evidence.generation
    if generation is None:
        return
    slower = []
    for cell in generation.done:
        plain = _plain_token(cell, generation) if cell.assisted else None
        if plain is not None and cell.tpot is not None and cell.tpot.value > plain:
            slower.append((cell.tpot.value / plain, plain, cell))
    if not slower:
        return
    factor, plain, cell = max(slower, key=lambda entry: entry[0])
    token = plain * factor
    time = (token - plain) * max(0, cell.new_tokens - 1)
    yield Finding(
        id="slow-assistant",
        severity=severity(share(time, evidence.time)),
        title=f"With the assistant a token takes {units.significant(factor, 2)} times as long",
        evidence=f"{units.time(token)} a token {_rounds(cell)}; without it {units.time(plain)}.",
        remedy="A smaller assistant, one that resembles the model more, fewer drafted tokens "
        "(num_assistant_tokens), or none.",
        time=time,
        worth=time,
    )


def _plain_token(cell: GenerationCell, generation: Generation) -> float | None:
    """Return the seconds of a token without the assistant: of the same shape, or by the fit."""
    sizes = (cell.batch, cell.prompt, cell.beams, cell.cache_kind)
    for other in generation.done:
        other_sizes = (other.batch, other.prompt, other.beams, other.cache_kind)
        if other_sizes == sizes and not other.assisted and other.tpot is not None:
            return other.tpot.value
    fit = generation.fit("decode", cell.cache_kind)
    if fit is None or fit.quantile is None:
        return None
    # Findings of other records are rendered without numpy.
    from torchgauge.analyze.generation.predictions import stage_time

    contexts = (cell.prompt + 1, cell.prompt + max(1, cell.new_tokens - 1))
    predicted = stage_time(fit, cell.batch * cell.beams, contexts)
    return None if predicted is None or predicted.extrapolated else predicted.seconds


def _rounds(cell: GenerationCell) -> str:
    """Return what a round of drafts and the model's check of them yields, in words."""
    rounds = emitted = drafts = 0
    draft_times, step_times = [], []
    for call in cell.timed_calls:
        forwards = call.forwards
        rounds += len(call.emitted)
        emitted += sum(call.emitted)
        drafts += len(forwards.indices("draft"))
        draft_times += [forwards.seconds(index) for index in forwards.indices("draft")]
        step_times += [forwards.seconds(index) for index in forwards.indices("decode")]
    if not rounds:
        return ""
    return (
        f"({units.significant(emitted / rounds, 2)} tokens a round, of "
        f"{units.significant(drafts / rounds, 2)} drafts of "
        f"{units.time(statistics.median(draft_times), 3)} and a forward of "
        f"{units.time(statistics.median(step_times), 3)})"
    )


RULE = Rule(
    "slow-assistant",
    _find,
    source="https://huggingface.co/docs/transformers/assisted_decoding",
)
