"""More samples in one call, as long as a call stays within a limit."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate
from torchgauge.records.model_facts import Facts


def _batch(times: int) -> Candidate:
    def code(_facts: Facts) -> str:
        return (
            f"args = [torch.cat([a] * {times}) for a in args]\n"
            f"kwargs = {{k: torch.cat([v] * {times}) for k, v in kwargs.items()}}"
        )

    return Candidate(
        id=f"batch-x{times}",
        title=f"{times} times the batch (time per sample)",
        code=code,
        reason=_reason,
        step="inference",
        order="process",
        group="batch",
        times=times,
        gain=0.2,
        needs_module=False,
    )


def _reason(facts: Facts) -> str | None:
    if facts.latency_limit is None:
        return (
            "Say how long a call may take: --latency-limit. `torchgauge sweep TARGET --batch auto` "
            "shows all batches."
        )
    if not facts.plain_inputs or not facts.target.batch:
        return "Its inputs do not say what the batch is."
    return None


CANDIDATES = (_batch(2), _batch(4), _batch(8))
