"""Candidates that change how much is computed at once, where, and how inputs come."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.advice import Assumed
from torchgauge.records.target import Facts


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
        reason=_batch_reason,
        step="inference",
        order="process",
        group="batch",
        times=times,
        gain=0.2,
        needs_module=False,
    )


def _batch_reason(facts: Facts) -> str | None:
    if facts.latency_limit is None:
        return (
            "Say how long a call may take: --latency-limit. `torchgauge sweep TARGET --batch auto` "
            "shows all batches."
        )
    if not facts.plain_inputs or not facts.target.batch:
        return "Its inputs do not say what the batch is."
    return None


def _copies(facts: Facts) -> str | None:
    if not facts.cuda:
        return "Nothing is copied to a GPU."
    return "The inputs are on the GPU when a call is timed: measure your loop with tg.timeline."


DEVICES = (2, 4, 8)
# Adam keeps two values for each parameter that is trained.
STATES = {"SGD": 0, "Adam": 2, "AdamW": 2}


def _sharding_reason(_facts: Facts) -> str | None:
    return "Several devices are needed; memory and traffic per device are estimated."


def _fsdp(facts: Facts) -> tuple[Assumed, ...]:
    """Estimate full sharding: parameters are gathered for each pass, gradients scattered once."""
    states = STATES.get(facts.optimizer, 2) + 1 if facts.training else 0
    total_bytes = facts.parameter_bytes + states * facts.trainable_bytes
    passes = 3 if facts.training else 1
    other_bytes = facts.activation_bytes
    estimates = []
    for n in DEVICES:
        sent = passes * facts.parameter_bytes * (n - 1) / n
        if other_bytes is not None:
            by = "(parameters, gradients, optimizer) ÷ devices + everything else at a call's peak"
            estimates.append(_bytes(f"memory of each of {n}", total_bytes / n + other_bytes, by))
        estimates.append(
            _bytes(f"sent by each of {n}, a step", sent, f"{passes} × (n−1)/n × weights")
        )
    return tuple(estimates)


def _tensor(facts: Facts) -> tuple[Assumed, ...]:
    """Estimate weights split over devices, each with its own part of every product."""
    by = "weights ÷ devices; what is sent depends on where activations are joined"
    return tuple(_bytes(f"weights on each of {n}", facts.parameter_bytes / n, by) for n in DEVICES)


def _bytes(name: str, value: float, by: str) -> Assumed:
    return Assumed(name=name, value=value, unit="B", by=by)


CANDIDATES = (
    _batch(2),
    _batch(4),
    _batch(8),
    Candidate(
        id="pinned-memory",
        title="pinned memory and copies that overlap the work",
        code=fixed(
            "loader = DataLoader(data, pin_memory=True)\n"
            "batch = batch.to(device, non_blocking=True)"
        ),
        reason=_copies,
        needs_module=False,
    ),
    Candidate(
        id="loader-workers",
        title="workers that load data",
        code=fixed("loader = DataLoader(data, num_workers=4, persistent_workers=True)"),
        reason=lambda _facts: (
            "The loader is in your loop: tg.timeline shows how long a step waits."
        ),
        step="training",
        needs_module=False,
    ),
    Candidate(
        id="fsdp",
        title="fully sharded data parallel",
        code=fixed("from torch.distributed.fsdp import fully_shard\nfully_shard(model)"),
        reason=_sharding_reason,
        goal="memory",
        assumed=_fsdp,
    ),
    Candidate(
        id="tensor-parallel",
        title="tensor parallel",
        code=fixed(
            "from torch.distributed.tensor.parallel import parallelize_module\n"
            "parallelize_module(model, mesh, plan)"
        ),
        reason=_sharding_reason,
        goal="memory",
        assumed=_tensor,
    ),
    Candidate(
        id="dynamic-batching",
        title="requests collected into batches",
        code=fixed("requests = queue.collect(most=8, wait=0.005)\nmodel(torch.cat(requests))"),
        reason=lambda _facts: (
            "It depends on how requests arrive: `torchgauge sweep TARGET --batch auto` says what a "
            "batch gains."
        ),
        step="inference",
        needs_module=False,
    ),
    Candidate(
        id="memory-pool",
        title="buffers shared by all requests",
        code=fixed("buffer.copy_(request)\nmodel(buffer)"),
        reason=lambda _facts: "The buffers are the server's, and the inputs here are used again.",
        step="inference",
        needs_module=False,
    ),
)
