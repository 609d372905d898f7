"""Findings about a job: stragglers, slow collectives, missing ranks."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.trace.trace import Trace


def job_findings(trace: Trace) -> tuple[Finding, ...]:
    """Return who is late, which collective was slow, and which ranks are missing."""
    return (*_straggler(trace), *_slow(trace), *_missing(trace))


def _straggler(trace: Trace) -> Iterator[Finding]:
    job = trace.job
    if job is None or job.straggler is None or job.lost is None:
        return
    window = max(rank.window for rank in trace.ranks)
    yield Finding(
        id="straggler",
        severity="serious" if job.lost > 0.1 * window else "warning",
        title=f"Rank {job.straggler} comes last: the others wait {units.time(job.lost)} for it",
        evidence=f"{units.percent(job.lost / window)} of the window; "
        f"{job.calls:,} collectives were matched across ranks.",
        remedy="Compare its breakdown with the others': more work, a slower device, or its host.",
    )


def _slow(trace: Trace) -> Iterator[Finding]:
    for call in trace.job.slow[:3] if trace.job is not None else ():
        size = "" if call.bytes is None else f" of {units.size(call.bytes)}"
        yield Finding(
            id="slow-collective",
            severity="warning",
            title=f"{call.name}{size}, call {call.number}, took {units.time(call.transfer)}",
            evidence=f"{call.transfer / call.usual:.1f} times the usual {units.time(call.usual)}, "
            f"{units.time(call.time)} after the first collective began; all ranks had arrived."
            if call.usual
            else f"Usually it takes no time; {units.time(call.time)} after the first one began.",
            remedy="See what else used the network then: another job, storage, a slow link.",
        )


def _missing(trace: Trace) -> Iterator[Finding]:
    if trace.missing:
        named = ", ".join(map(str, trace.missing[:8])) + (" …" if len(trace.missing) > 8 else "")
        yield Finding(
            id="ranks-missing",
            severity="info",
            title=f"{len(trace.missing)} ranks have no file: {named}"
            if len(trace.missing) > 1
            else f"Rank {named} has no file",
            evidence=f"{len(trace.ranks)} files could be read; the job has "
            f"{len(trace.missing) + len(trace.ranks)} ranks.",
            remedy="The straggler may be among them: collect the files of all ranks.",
        )
