"""Many collectives on messages that are too small to use the links."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

# Below it the latency of a collective outweighs its transfer: 1 MiB at 100 GB/s is 10 µs.
SMALL = 2**20
# DDP's buckets are 25 MiB; a few small messages (a loss, a norm) are nothing to join.
MIN_CALLS = 32
_JOINABLE = ("allreduce", "reducescatter", "allgather", "broadcast", "reduce")


def _find(evidence: Evidence) -> Iterator[Finding]:
    """Gradients that are reduced one by one: a bucket of them takes hardly longer than one does.

    Those of inference (tensor parallelism) depend on each other, and cannot be joined.
    """
    if evidence.rank is None or not any(node.row.phase == "backward" for node in evidence.nodes):
        return
    collectives = [kind for kind in evidence.rank.collectives if kind.name in _JOINABLE]
    small = [kind for kind in collectives if kind.bytes is not None and kind.bytes < SMALL]
    calls, exposed = sum(kind.calls for kind in small), sum(kind.exposed for kind in small)
    all_calls = sum(kind.calls for kind in collectives)
    exposed = min(exposed, evidence.time)
    if calls < MIN_CALLS or calls < all_calls / 2 or share(exposed, evidence.time) < NOTICEABLE:
        return
    total = sum(kind.bytes * kind.calls for kind in small if kind.bytes is not None)
    yield RULE.costs(
        exposed,
        evidence.time,
        title=f"{calls:,} of {all_calls:,} collectives have less than 1 MiB: "
        f"{units.size(total / calls)} on average",
        evidence=f"They take {units.time(sum(kind.time for kind in small))}, "
        f"{units.time(exposed)} of it beside no computation, for {units.size(total)}.",
        remedy="Join them: larger buckets (DDP's bucket_cap_mb, FSDP units of more layers), or "
        "torch.distributed._coalescing_manager around them.",
        view="devices",
    )


RULE = Rule(
    "small-collectives",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/"
    "torch.nn.parallel.DistributedDataParallel.html",
)
