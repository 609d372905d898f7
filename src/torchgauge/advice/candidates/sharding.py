"""The model over several devices: what each would hold and send, estimated."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.advice import Assumed
from torchgauge.records.model_facts import Facts

DEVICES = (2, 4, 8)
# Adam keeps two values for each parameter that is trained.
STATES = {"SGD": 0, "Adam": 2, "AdamW": 2}


def _reason(_facts: Facts) -> str | None:
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
    Candidate(
        id="fsdp",
        title="fully sharded data parallel",
        code=fixed("from torch.distributed.fsdp import fully_shard\nfully_shard(model)"),
        reason=_reason,
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
        reason=_reason,
        goal="memory",
        assumed=_tensor,
    ),
)
