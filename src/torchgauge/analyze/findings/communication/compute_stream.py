"""Collectives on the stream that computes, where they can overlap with nothing."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

# Of the device's computation: the stream with so much is the one that computes.
COMPUTES = 0.5
EXPOSED = 0.9


def _find(evidence: Evidence) -> Iterator[Finding]:
    """A stream's work runs one after the other, so that the collective ends before the next."""
    if evidence.rank is None or evidence.rank.device_kind == "TPU":
        return  # its one line of work says nothing of what runs beside it
    for device in evidence.device_times:
        for stream in device.streams:
            own, window = stream.breakdown, device.breakdown.window
            time = min(own.communication, device.breakdown.exposed_communication)
            if (
                share(time, window) < NOTICEABLE
                or own.compute < COMPUTES * device.breakdown.compute
                or time < EXPOSED * own.communication
            ):
                continue
            yield RULE.costs(
                time,
                window,
                title=f"{evidence.called(device.device)} communicates and computes on one stream: "
                f"{units.percent(share(time, window))} of the window cannot overlap",
                evidence=f"Stream {stream.stream}: {units.time(own.communication)} of "
                f"communication and {units.time(own.compute)} of computation.",
                remedy="Issue independent collectives with async_op=True and wait where the result "
                "is needed; between layers of tensor parallelism, split the product so that a part "
                "is sent while the next is computed (torch.distributed._symmetric_memory).",
                worth=min(time, own.compute),
                view="devices",
            )


RULE = Rule(
    "collectives-on-compute-stream",
    _find,
    source="https://docs.pytorch.org/docs/stable/distributed.html"
    "#synchronous-and-asynchronous-collective-operations",
    explains=("exposed-communication",),
    jax_remedy="Have XLA run them beside the computation: "
    "--xla_gpu_enable_latency_hiding_scheduler=true in XLA_FLAGS.",
)
