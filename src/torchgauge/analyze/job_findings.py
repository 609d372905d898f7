"""What stands out between ranks, in words."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.model.finding import Finding
from torchgauge.model.trace import Trace


def job_findings(trace: Trace) -> tuple[Finding, ...]:
    """Return who is late, which collective was slow, and which ranks are not there."""
    return (*_straggler(trace), *_slow(trace), *_missing(trace))


def _straggler(trace: Trace) -> Iterator[Finding]:
    found = trace.job
    if found is None or found.straggler is None or found.lost is None:
        return
    window = max(one.window for one in trace.ranks)
    yield Finding(
        id="straggler",
        severity="serious" if found.lost > 0.1 * window else "warning",
        title=f"Rank {found.straggler} comes last: the others wait {units.time(found.lost)} for it",
        evidence=f"{units.percent(found.lost / window)} of the window; "
        f"{found.calls:,} collectives were put side by side.",
        remedy="Compare its breakdown with the others': more work, a slower device, or its host.",
    )


def _slow(trace: Trace) -> Iterator[Finding]:
    for one in trace.job.slow[:3] if trace.job is not None else ():
        size = "" if one.bytes is None else f" of {units.size(one.bytes)}"
        yield Finding(
            id="slow-collective",
            severity="warning",
            title=f"{one.name}{size}, call {one.number}, took {units.time(one.transfer)}",
            evidence=f"{one.transfer / one.usual:.1f} times the usual {units.time(one.usual)}, "
            f"{units.time(one.at)} after the first collective began; all ranks had arrived."
            if one.usual
            else f"The usual is nothing; {units.time(one.at)} after the first collective began.",
            remedy="See what else used the network then: another job, storage, a slow link.",
        )


def _missing(trace: Trace) -> Iterator[Finding]:
    if trace.missing:
        named = ", ".join(map(str, trace.missing[:8])) + (" …" if len(trace.missing) > 8 else "")
        yield Finding(
            id="ranks-missing",
            severity="info",
            title=f"Nothing is known of {len(trace.missing)} ranks: {named}"
            if len(trace.missing) > 1
            else f"Nothing is known of rank {named}",
            evidence=f"{len(trace.ranks)} files could be read; the job has "
            f"{len(trace.missing) + len(trace.ranks)} ranks.",
            remedy="Who comes last may be among them: collect the files of all ranks.",
        )
