"""What a recording lacks."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, rule, share
from torchgauge.records.finding import Finding

_RECORD_HOST = (
    "Record the host's calls too: torch.profiler.profile(activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA]), rocprofv3 --hip-trace --kernel-trace, nsys profile --trace=cuda,nvtx."
)
_RECORD_LAUNCHES = {"rocprof": "Record the calls of HIP too: rocprofv3 --hip-trace --kernel-trace."}


@rule(
    "launched-before",
    order="most",
    jax_remedy="Record after a warm-up, and call jax.block_until_ready before.",
)
def launched_before(evidence: Evidence) -> Iterator[Finding]:
    """Find device work that was launched before the recording began."""
    rank = evidence.rank
    if rank is None or not evidence.has_launches:
        return
    before, recorded = share(rank.launched_before, rank.device_time), rank.contents.launches > 0
    if before < NOTICEABLE:
        return
    yield launched_before.finding(
        "warning",
        title=f"{units.percent(before)} of the device's time has no launch in the file",
        evidence=f"{units.time(rank.launched_before)} were launched before the window; "
        "by which layer is not known."
        if recorded
        else "No launches were recorded: what the device waited for is not known, nor which layer "
        "or operator its work belongs to.",
        remedy="Record after a warm-up (schedule(wait=…, warmup=…)), and synchronise before."
        if recorded
        else _RECORD_LAUNCHES.get(rank.contents.recorder or "", _RECORD_HOST),
        time=min(rank.launched_before, rank.window),  # streams run at once
        view="tree",
    )


@rule("graph-capture", order="first", explains=("synchronisation", "idle-host", "launch-bound"))
def graph_capture(evidence: Evidence) -> Iterator[Finding]:
    """Find a recording of the capture of CUDA graphs, whose times are not those of a step."""
    graphs = None if evidence.rank is None else evidence.rank.graphs
    if graphs is None or share(graphs.capture_time, evidence.time) < NOTICEABLE:
        return
    yield graph_capture.finding(
        title=f"CUDA graphs are captured for {units.percent(graphs.capture_time / evidence.time)} "
        "of the window",
        evidence=f"{graphs.captured:,} graphs in {units.time(graphs.capture_time)}. What is "
        "captured does not run: waits and pauses here are none of a step.",
        remedy="Record replays, and give operators to their kernels: torchgauge trace REPLAY "
        "--capture FILE.",
        time=graphs.capture_time,
    )


MAX_NUMBERS = 8


@rule("ranks-missing")
def missing_ranks(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks of a job without a file."""
    trace = evidence.job
    if trace is None or not trace.missing:
        return
    named = ", ".join(map(str, trace.missing[:MAX_NUMBERS]))
    named += " …" * (len(trace.missing) > MAX_NUMBERS)
    yield missing_ranks.finding(
        title=f"{len(trace.missing)} ranks have no file: {named}"
        if len(trace.missing) > 1
        else f"Rank {named} has no file",
        evidence=f"{len(trace.ranks)} files could be read; the job has "
        f"{len(trace.missing) + len(trace.ranks)} ranks.",
        remedy="The straggler may be among them: collect the files of all ranks.",
    )
