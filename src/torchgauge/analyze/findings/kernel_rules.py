"""What takes the time of a recorded device, and how near it is to what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, short_name
from torchgauge.analyze.findings.rule import MAJORITY, rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.analyze.work.category_times import CategoryTime, category_times
from torchgauge.records.finding import Finding

# Kernels that a sentence names, and the smallest share of the time that one of them has.
MOST_NAMED = 3
LEAST_NAMED = 0.1
# Of a peak: little is left to gain without less work.
NEAR_PEAK = 0.6


@rule("hottest-kernels", order="most")
def hottest_kernels(evidence: Evidence) -> Iterator[Finding]:
    """Find the few kernels, else the category, that take most of the time of device work."""
    if evidence.rank is None or not evidence.device_time:
        return
    times: Counter[str] = Counter()
    for calls in evidence.kernels:
        times[calls.name] += calls.time  # type: ignore[assignment]
    total = evidence.device_time
    names = _majority(times, total)
    by_name = {row.name: row for row in category_times(evidence.rank.tree, evidence.rank.roofs)}
    group = max(by_name.values(), key=lambda row: row.time)
    if names:
        time: float = sum(times[name] for name in names)
        listed = [f"{short_name(name)} {units.percent(times[name] / total)}" for name in names]
        several = len(names) > 1
        subject = f"{len(names)} kernels take" if several else f"{short_name(names[0])} takes"
        parts = f"{', '.join(listed)}; " * several
        group = by_name.get(category(names[0]), group)
    else:
        time, parts = group.time, "No few kernels take half of it; "
        subject = f"{group.name.capitalize()} takes"
    bound, gain, remedy = _bound(group, evidence)
    other_time: float = sum(times[name] for name in names if category(name) != group.name)
    yield hottest_kernels.finding(
        title=f"{subject} {units.percent(time / total)} of the time of device work",
        evidence=f"{parts}{units.time(time)} of {units.time(total)}. {bound}",
        remedy=remedy,
        time=evidence.within(time),
        worth=None if gain is None else evidence.within(min(gain, time - other_time) + other_time),
        search=names[0] if names else "",
        view="tables",
    )


def _majority(times: Counter[str], total: float) -> list[str]:
    """Return the kernels that take half of the time together; none where that is many."""
    names = [name for name, time in times.most_common(MOST_NAMED) if time >= LEAST_NAMED * total]
    return names if sum(times[name] for name in names) >= MAJORITY * total else []


def _bound(group: CategoryTime, evidence: Evidence) -> tuple[str, float | None, str]:
    """Return how near a category is to what bounds it, its seconds above, and what to try."""
    if group.name == "communication":
        exposed = sum(device.breakdown.exposed_communication for device in evidence.device_times)
        return f"{units.time(exposed)} of communication overlap with no computation.", exposed, ""
    reached = [
        (part, known_time, words)
        for part, known_time, words in (
            (group.compute_share, group.peak_time, "the peak of its type"),
            (group.memory_share, group.bytes_time, "the memory's bandwidth"),
        )
        if part is not None
    ]
    if not reached:
        known_share = share(max(group.flops_time, group.bytes_time), group.time)
        cause = (
            "no peaks of this device are known"
            if known_share >= MAJORITY
            else f"its work is known for {units.percent(known_share)} of its time"
        )
        has_work = evidence.rank is not None and evidence.rank.tree.root.flops is not None
        remedy = "" if has_work else "Record with record_shapes=True, which gives FLOPs and bytes."
        return f"How near {group.name} is to the device's peaks is unknown: {cause}.", None, remedy
    highest, known_time, _ = max(reached)
    less_work = "Beyond that only less work helps: fewer elements, or a smaller type."
    remedy = less_work if highest >= NEAR_PEAK else "See its shapes and launches."
    listed = " and ".join(f"{units.percent(part)} of {words}" for part, _, words in reached)
    gain = group.time - highest * min(known_time, group.time)
    return f"{group.name.capitalize()} reaches {listed}.", gain, remedy
