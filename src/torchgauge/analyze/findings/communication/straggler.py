"""The ranks that the others wait for, time and again."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.trace.straggler import Differing, RankDifference, Straggler

SERIOUS = 0.1  # of the window
MAX_DIFFERENCES = 3
_PHRASES: dict[Differing, str] = {
    "kernels": "in kernels that compute",
    "copies": "in copies",
    "waiting for the host": "in which its device waits for the host",
    "input": "in the input pipeline",
    "synchronisations": "in which its host waits for the device",
    "host": "of its host",
}
_REMEDIES: dict[Differing, str] = {
    "kernels": "Give the ranks equal work (sequence lengths, pipeline stages); if theirs is equal, "
    "see whether its device runs slower.",
    "copies": "See its copies: more data, memory that is not pinned, or a slower link.",
    "waiting for the host": "See what its host does before it launches: other load on its cores, "
    "their pinning, Python code that only this rank runs.",
    "input": "See its input pipeline: its share of the files, their storage, its workers.",
    "synchronisations": "Remove the synchronisations that only this rank has (logging, metrics).",
    "host": "See why only this rank's host does this: logging, checkpoints, other load.",
}


def _find(evidence: Evidence) -> Iterator[Finding]:
    job = None if evidence.job is None else evidence.job.job
    for straggler in job.stragglers if job is not None else ():
        lost_share = straggler.lost / evidence.time
        first = straggler.differences[0].aspect if straggler.differences else None
        yield Finding(
            id="straggler",
            severity="serious" if lost_share > SERIOUS else "warning",
            title=f"Rank {straggler.rank} comes last: the others wait "
            f"{units.time(straggler.lost)} for it",
            evidence=_evidence(straggler, lost_share),
            remedy="Compare its breakdown with the others': more work, a slower device, or its "
            "host."
            if first is None
            else _REMEDIES[first],
            time=straggler.lost,
            worth=straggler.lost,
            view="ranks",
        )


def _evidence(straggler: Straggler, lost_share: float) -> str:
    interval = straggler.interval
    text = (
        f"{units.percent(lost_share)} of the window "
        f"({units.time(interval.low)} to {units.time(interval.high)}); "
        f"the last in {straggler.last:,} of {straggler.units:,} {straggler.unit}s in which any "
        "rank was late."
    )
    phrases = [_phrase(difference) for difference in straggler.differences[:MAX_DIFFERENCES]]
    return f"{text} More than the others have: {', '.join(phrases)}." if phrases else text


def _phrase(difference: RankDifference) -> str:
    name = f" ({difference.name})" if difference.name else ""
    return f"{units.time(difference.extra_time)} {_PHRASES[difference.aspect]}{name}"


RULE = Rule(
    "straggler",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
    explains=("late-rank", "uneven-work"),
)
