"""The page of a generation: first the headline shape, then all of them, and two trees.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from torchgauge import units
from torchgauge.analyze.work.roof_quality import description
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell, RepeatedTime
from torchgauge.records.generation.generation import Generation, StageTree
from torchgauge.report.content.findings import findings_of
from torchgauge.report.content.generation import generation_words as words
from torchgauge.report.page import page_series as page_method
from torchgauge.report.page import page_tables, page_tree
from torchgauge.report.page.generation import context_growth, shapes
from torchgauge.report.page.page_document import (
    Choice,
    Option,
    bar,
    figure,
    finding_entry,
    first_screen,
)
from torchgauge.report.page.page_shorter import ns, short

FEWEST_CALLS = 3  # for an interval
TREES = {"prefill": "prefill", "decode": "decode step"}
# Where a finding is detailed, by its id; elsewhere with the shapes.
VIEWS = {
    "attention-growth": "growth",
    "between-forwards": "calls",
    "beyond-window": "cache",
    "prompt-recomputed": "calls",
    "slow-assistant": "calls",
    "unused-cache": "cache",
}
WORDS = (
    ["prefill", "the forwards that compute the prompt's positions, an encoder's with them", ""],
    ["decode step", "a forward after the first token, with the time until the next one begins", ""],
    ["TTFT", "time to the first token: from the begin of the call until it was chosen", ""],
    ["TPOT", "time per token after the first: the rest of the call over its other tokens", ""],
    ["between forwards", "choosing tokens, rules for stopping, Python", ""],
    ["context", "the positions that a token attends to, its own with them", ""],
    ["cache held", "bytes of all the cache's memory, each storage once", ""],
    ["cache used", "bytes of the positions that hold tokens, and of states without positions", ""],
)  # fmt: skip


def title(generation: Generation) -> str:
    """Return the page's title."""
    return f"Generation of {generation.target.name}"


def overview(generation: Generation) -> dict[str, Any]:
    """Return the first screen: the headline shape's figures, findings and warnings."""
    return first_screen(
        _facts(generation),
        _figures(generation),
        (
            finding_entry(finding, VIEWS.get(finding.id, "shapes"))
            for finding in findings_of(generation)
        ),
        generation.all_warnings,
        created=generation.environment.created,
        complete=generation.complete,
        interrupted=generation.interrupted,
    )


def headline(generation: Generation) -> GenerationCell | None:
    """Return the cell whose figures stand first; None where none was measured."""
    return next(iter(generation.done), None)


def _facts(generation: Generation) -> list[list[str]]:
    cell = headline(generation)
    facts = [[label, short(text), ""] for label, text in words.facts(generation)]
    if generation.watched:
        facts.append(["calls", "those of a program", "watched"])
    if generation.largest_batch is not None:
        text = words.largest_batch(generation.largest_batch)
        facts.append(["largest batch", text, ""])
    if cell is not None:
        calls = f"{len(cell.timed_calls):,} call{'s' * (len(cell.timed_calls) != 1)}"
        facts.append(["figures of", cell.label, f"{cell.new_tokens:,} new tokens, {calls}"])
    return facts


def _figures(generation: Generation) -> list[dict[str, str]]:
    cell = headline(generation)
    if cell is None:
        return []
    cards = [
        _time_card("time to first token", cell.ttft, "no token was made"),
        _time_card("time per token", cell.tpot, "of two tokens or more"),
        _rate_card("tokens per second", cell.tokens_per_second, shape=""),
    ]
    fastest = max(
        (other for other in generation.done if other.tokens_per_second is not None),
        key=lambda other: other.tokens_per_second.value,  # type: ignore[union-attr]
        default=None,
    )
    if fastest is not None and fastest is not cell:
        cards.append(_rate_card("most tokens per second", fastest.tokens_per_second, fastest.label))
    if cell.cache is not None:
        used = cell.cache.used
        note = "layout not known" if used is None else f"{units.size(used, 3)} used"
        cards.append(figure("cache held", units.size(cell.cache.held), note, "measured", "cache"))
    work = cell.work_of("decode")
    if work is not None and work.reached is not None:
        note = f"a step takes at least {units.time(work.lower_bound, 3)}, bound by {work.bound}"
        reached = units.percent(work.reached)
        cards.append(figure("share of the bound, decode", reached, note, "estimated", "shapes"))
    return cards


def _time_card(label: str, repeated: RepeatedTime | None, absent: str) -> dict[str, str]:
    if repeated is None:
        return figure(label, units.UNKNOWN, absent, "")
    interval = repeated.interval
    note = (
        f"95 %: {units.times(interval.low, interval.high, 3)}"
        if interval is not None
        else no_interval(repeated)
    )
    return figure(label, units.time(repeated.value), note, repeated.how, "growth")


def _rate_card(label: str, repeated: RepeatedTime | None, shape: str) -> dict[str, str]:
    if repeated is None:
        return figure(label, units.UNKNOWN, "not measured", "", "shapes")
    note = shape or "of all prompts, prefill included"
    return figure(label, units.rate(repeated.value, "tokens", 3), note, repeated.how, "shapes")


def no_interval(repeated: RepeatedTime) -> str:
    """Say why a figure has no interval."""
    if repeated.calls < FEWEST_CALLS:
        calls = f"{repeated.calls:,} call{'s' * (repeated.calls != 1)}"
        return f"of {calls}: no interval from fewer than {FEWEST_CALLS}"
    return f"of {repeated.calls:,} calls, no interval"


def calls(generation: Generation) -> dict[str, Any] | None:
    """Return the parts of each cell's middle call; None where no call is known."""
    has_kinds = len({cell.kind for cell in generation.cells}) > 1
    is_assisted = generation.assistant is not None
    rows = []
    for cell in generation.cells:
        if (call := words.middle_call(cell)) is not None:
            name = shapes.size(cell.batch, cell.prompt) + f", {cell.kind}" * has_kinds
            row = _call_row(short(name.removesuffix(" cache")), call)
            rows.append({**row, "more": row["more"][: 1 + is_assisted]})
    if not rows:
        return None
    return {
        "parts": [*words.FORWARDS.values(), words.BETWEEN],
        "more": ["new tokens", "tokens a step"][: 1 + is_assisted],
        "whole": "call",
        "note": "Of several calls of a shape, the one of median duration: its parts add up to it.",
        "rows": rows,
    }


def _call_row(name: str, call: GenerationCall) -> dict[str, Any]:
    parts = words.call_parts(call)
    ended = "Ctrl-C" if call.interrupted else call.error
    return bar(
        name,
        ns(call.duration),
        (ns(parts.get(part, 0.0)) for part in (*words.FORWARDS.values(), words.BETWEEN)),
        [f"{call.new_tokens:,}", _tokens_a_step(call)],
        f"ended by {ended}" if ended else "",
    )


def _tokens_a_step(call: GenerationCall) -> str:
    emitted = call.emitted
    return f"{statistics.mean(emitted):.2f}" if emitted else "–"


def choice(generation: Generation) -> Choice:
    """Return the trees of a prefill and a decode step, one shown at a time."""
    options = [
        Option(TREES[stage.stage], _tree_parts(generation, stage)) for stage in generation.trees
    ]
    return Choice("Forward", options or [Option("", {})], view="tree")


def _tree_parts(generation: Generation, stage: StageTree) -> dict[str, Any]:
    cell = generation.cells[stage.cell] if stage.cell < len(generation.cells) else None
    shape = "" if cell is None else f", {cell.label}"
    context = f", {stage.cached:,} positions in the cache" if stage.cached else ""
    note = f"One {TREES[stage.stage]}{shape}{context}."
    tables = page_tables.all_tables(stage.tree, generation.roofs)
    return {
        "tree": {**page_tree.columns(stage.tree), "note": note},
        "tables": [{**table, "note": note} for table in tables] or None,
    }


def method(generation: Generation) -> dict[str, Any]:
    """Return what the words mean, and how the figures were obtained."""
    parts: list[list[Any]] = [
        ["Generation", [*WORDS]],
        ["How a figure is known", [*page_method.KINDS]],
        ["Calls", list(_call_facts(generation))],
    ]
    parts += [
        [f"Tree of a {TREES[stage.stage]}", page_method.tree_facts(stage.tree)]
        for stage in generation.trees
    ]
    return {"parts": [part for part in parts if part[1]], "figures": []}


def _call_facts(generation: Generation) -> Iterable[list[str]]:
    warmup = max((cell.warmup for cell in generation.cells), default=0)
    yield ["intervals", "Student's t on the logarithms of calls", "none below three calls"]
    yield ["warm-up", f"{warmup:,} call{'s' * (warmup != 1)} a shape", "in no figure"]
    if generation.overhead is not None:
        yield ["watching", units.time(generation.overhead, 3), "added to each forward"]
    if generation.roofs is not None:
        yield ["roofs", description(generation.roofs), generation.roofs.method]
    for fit in generation.fits:
        spread = f"cells lie {units.percent(fit.spread)} around the line"
        yield [f"fit of {fit.stage}", f"{len(fit.cells):,} shapes, {fit.cache_kind} cache", spread]


PARTS = {
    "overview": overview,
    "shapes": shapes.shapes,
    "growth": context_growth.growth,
    "cache": context_growth.cache,
    "calls": calls,
    "method": method,
    "environment": page_method.environment,
}
