"""Words of a generation's report, shared by all formats: fits, caches, memory, the assistant."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Literal

from torchgauge import units
from torchgauge.records.generation.call import GenerationCall, Stage
from torchgauge.records.generation.cell import GenerationCell, StageFit
from torchgauge.records.generation.generation import Generation, LargestBatch
from torchgauge.records.record import Interval
from torchgauge.records.work.energy import Energy
from torchgauge.report.content.document import Detailed
from torchgauge.report.content.section import counter_row
from torchgauge.report.tables.target_facts import hardware, software

STAGES: dict[str, Literal["prefill", "decode"]] = {"prefill": "prefill", "decode step": "decode"}
FORWARDS: dict[Stage, str] = {
    "encoder": "encoder",
    "prefill": "prefill",
    "decode": "decode forwards",
    "draft": "draft model",
}
BETWEEN = "between forwards"
KILO = 1000  # positions: the time of one is too short to be read


def facts(generation: Generation) -> list[tuple[str, str]]:
    """Return what was measured, where, and what came of it."""
    target, machine = generation.target, generation.environment.machine
    pairs = [
        ("target", target.spec),
        ("assistant", _assistant(generation)),
        ("model", _model(generation)),
        ("shapes", shapes(generation)),
        ("machine", hardware(machine, machine.gpus)),
        ("software", software(generation.environment)),
    ]
    return [(label, text) for label, text in pairs if text]


def _assistant(generation: Generation) -> str:
    assistant = generation.assistant
    return "" if assistant is None else ", ".join(filter(None, (assistant.name, assistant.spec)))


def _model(generation: Generation) -> str:
    target, size = generation.target, generation.size
    parts = [f"{target.device}, {target.precision}"]
    if size is not None:
        elements = units.elements(size.parameters, 3)
        parts.append(f"{elements} parameters in {units.size(size.bytes, 3)}")
    return ", ".join(parts)


def shapes(generation: Generation) -> str:
    """Return how many shapes there are, how they ended, and of how many calls figures are."""
    statuses = [cell.status for cell in generation.cells]
    counted = [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]
    texts = [", ".join(counted) or "none"]
    timed = sorted({len(cell.timed_calls) for cell in generation.done})
    if timed:
        calls = " to ".join(map(str, dict.fromkeys((timed[0], timed[-1]))))
        texts.append(f"{calls} {'call' if timed == [1] else 'calls'} of each")
    new = sorted({cell.new_tokens for cell in generation.cells})
    if new:
        texts.append(f"{' to '.join(map(str, dict.fromkeys((new[0], new[-1]))))} new tokens")
    return "; ".join(texts)


def share_of(interval: Interval | None, value: float) -> str:
    """Format half an interval as a share of its figure: "2.2 %"; "" where it is unknown."""
    return "" if interval is None or not value else units.percent(interval.half_width / abs(value))


def name(generation: Generation, cell: GenerationCell) -> str:
    """Return a shape's name; kind of cache and beams only where these differ."""
    has_kinds = len({other.kind for other in generation.cells}) > 1
    return cell.label if has_kinds else cell.size_label


def fit(stage: StageFit) -> Detailed:
    """Return a fit in words: "8.80 ms + 950 µs per sequence + 5 µs per 1,000 cached positions"."""
    is_step = stage.stage == "decode" and stage.cache_kind != "none"  # which computes all again
    terms = [
        (stage.fixed, 1, ""),
        (stage.per_token, 1, "per sequence" if is_step else "per token"),
        (stage.per_context, KILO, f"per {KILO:,} {'cached' if is_step else 'attended'} positions"),
    ]
    nonzero = [term for term in terms if term[0].value] or terms[:1]
    text = " + ".join(
        f"{units.time(coefficient.value * count, 3)} {unit}".strip()
        for coefficient, count, unit in nonzero
    )
    halves = [share_of(coefficient.interval, coefficient.value) for coefficient, _, _ in nonzero]
    details = [f"±{', '.join(halves)}"] * all(halves) + [stage.reason] * bool(stage.reason)
    return Detailed(text.replace("+ −", "− "), f"  {'; '.join(details)}" * bool(details))


def caches(generation: Generation) -> Iterator[tuple[str, str]]:
    """Yield the caches that hold more than is used, or of which no formula is known, and why."""
    for cell in generation.done:
        cache = cell.cache
        if cache is not None and cache.reason:
            parts = [f"{units.size(cache.held, 3)} held"]
            parts += [f"{units.size(cache.used, 3)} used"] * (cache.used is not None)
            formula = units.size(cache.formula, 3)
            parts += [f"{formula} by formula"] * (cache.formula not in (None, cache.used))
            yield name(generation, cell), f"{', '.join(parts)}: {cache.reason}"


def memory(generation: Generation) -> Iterator[tuple[str, str]]:
    """Yield the peak at the longest context and the largest batch, and what fits at most."""
    measured = [cell for cell in generation.done if cell.memory is not None]
    by_prompt = sorted(measured, key=lambda cell: (cell.prompt, cell.batch))
    by_batch = sorted(measured, key=lambda cell: (cell.batch, cell.prompt))
    for cell in {cell.label: cell for cell in (*by_prompt[-1:], *by_batch[-1:])}.values():
        if cell.memory is not None:
            cache = "" if cell.cache is None else f", {units.size(cell.cache.held, 3)} of it cache"
            yield (
                name(generation, cell),
                f"{units.size(cell.memory.peak, 3)} at the peak of a step{cache}",
            )
    if generation.largest_batch is not None:
        yield "largest batch", largest_batch(generation.largest_batch)


def energies(generation: Generation) -> Iterator[tuple[str, str]]:
    """Yield the joules of a call with the idle power's part, or why they are not known."""
    reasons: set[str] = set()
    for cell in generation.done:
        energy = cell.energy
        if energy is None or energy.reason in reasons:
            continue
        if energy.joules is None:
            reasons.add(energy.reason)
            yield "energy", f"{units.UNKNOWN}: {energy.reason}"
            continue
        prefix = "at least " * energy.at_least
        above = units.energy(energy.above_idle, 3)
        yield (
            name(generation, cell),
            f"{prefix}{units.energy(energy.joules, 3)} a call, {above} above idle",
        )
        if cell.prefill_energy is not None and cell.prefill_energy.joules is not None:
            yield "of that, to the first token", prefix + _per_token(cell.prefill_energy)
        if cell.decode_energy is not None:
            joules, half = (units.energy(value, 3) for value in cell.decode_energy)
            yield "a token after the first", f"{prefix}{joules} ± {half}, by the calls' difference"
    measured = [cell.energy for cell in generation.done if cell.energy and cell.energy.joules]
    for row in map(counter_row, measured[0].counters if measured else ()):
        if row.note:
            yield row.label, row.note


def _per_token(energy: Energy) -> str:
    """Return the joules of a call, and of a token of its prompts."""
    per_token = units.energy(energy.per_token, 3)
    return f"{units.energy(energy.joules, 3)}, {per_token} a token of the prompt"


def largest_batch(largest: LargestBatch) -> str:
    """Return what fits, and what was seen to fit and not to."""
    text = (
        f"{largest.largest:,} of {largest.context:,} positions fit into "
        f"{units.size(largest.capacity, 3)}, estimated from {units.size(largest.fixed, 3)} + "
        f"{units.size(largest.per_sequence, 3)} per sequence"
    )
    outcomes = [f"{largest.done:,} measured"] if largest.done else []
    outcomes += [f"{largest.failed:,} ran out of memory"] if largest.failed else []
    return f"{text}; {', '.join(outcomes)}" if outcomes else text


def drafts(cell: GenerationCell) -> str:
    """Return how many tokens a step adds with an assistant, and what it costs; "" without one."""
    assisted = [call for call in cell.timed_calls if call.forwards.indices("draft")]
    if not assisted:
        return ""
    added = [count for call in assisted for count in call.emitted]
    computed = [
        call.forwards.tokens[step] for call in assisted for step in call.forwards.indices("decode")
    ]
    seconds = sum(
        call.forwards.seconds(index)
        for call in assisted
        for index in call.forwards.indices("draft")
    )
    total = sum(call.duration for call in assisted)
    share = units.percent(seconds / total if total else None)
    tokens = units.significant(statistics.fmean(added), 3) if added else units.UNKNOWN
    return (
        f"a step adds {tokens} tokens on average and computes "
        f"{units.significant(statistics.fmean(computed), 3)}; the assistant takes {share} of a call"
    )


def in_short(generation: Generation) -> Iterator[tuple[str, Detailed]]:
    """Yield the range of what a user waits for over the shapes, and what holds steps up."""
    done = generation.done
    for label, times in (
        ("first token", [cell.ttft for cell in done]),
        ("per token", [cell.tpot for cell in done]),
    ):
        if seconds := [time.value for time in times if time is not None]:
            yield label, Detailed(_times(seconds), "")
    rates = {cell.label: cell.tokens_per_second.value for cell in done if cell.tokens_per_second}
    if rates:
        best = max(rates, key=lambda label: rates[label])
        cell = next(cell for cell in done if cell.label == best)
        detail = f"  at {name(generation, cell)}" * (len(rates) > 1)
        yield (
            "tokens/s",
            Detailed(f"up to {rate(rates[best])}" if detail else rate(rates[best]), detail),
        )
    for label, stage in STAGES.items():
        works = [work for cell in done if (work := cell.work_of(stage)) and work.reached]
        if works:
            bounds = " or ".join(dict.fromkeys(str(work.bound) for work in works))
            reached = sorted(work.reached or 0.0 for work in works)
            low, high = (units.percent(share) for share in (reached[0], reached[-1]))
            shares = high if low == high else f"{low.removesuffix(' %')} … {high}"
            yield label, Detailed(f"bound by {bounds}", f"  at {shares} of the bound")


def _times(seconds: list[float]) -> str:
    low, high = min(seconds), max(seconds)
    return units.time(low, 3) if low == high else units.times(low, high, 3)


def rate(per_second: float | None) -> str:
    """Format tokens per second without their unit: 75.3, "1.2 M"."""
    return units.rate(per_second, "", 3).removesuffix("/s").strip()


def middle_call(cell: GenerationCell) -> GenerationCall | None:
    """Return the call of median duration; of a cell without timed calls the last, if any."""
    timed = sorted(cell.timed_calls, key=lambda call: call.duration)
    if timed:
        return timed[(len(timed) - 1) // 2]
    return cell.calls[-1] if cell.calls else None


def call_parts(call: GenerationCall) -> dict[str, float]:
    """Return the seconds of a call on the host by what ran; they add up to its duration."""
    forwards = call.forwards
    times = {
        name: sum(forwards.duration[index] for index in forwards.indices(stage))
        for stage, name in FORWARDS.items()
    }
    return {name: time for name, time in (*times.items(), (BETWEEN, call.between)) if time > 0}
