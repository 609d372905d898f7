"""What bounds a decode step under the device's roofs, and how near it comes to that."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.generation.decode_time import decode_count, forward_time, shape
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.analyze.work.bottleneck import EXPLAINED, LEAST_EXPLAINED
from torchgauge.records.finding import Finding
from torchgauge.records.generation.cell import StageWork

_REMEDIES = {
    "memory": "Fewer bytes: weights in bfloat16, int8 or int4, a quantized cache, fewer heads of "
    "keys; or more prompts in a batch, which share one read of the weights.",
    "compute": "bfloat16 or float16 where the device multiplies them faster; fewer prompts at once "
    "take less time each step.",
}
_STARTING = (
    " Nearer to the bound: torch.compile with a static cache, which leaves out the time of "
    "starting operators."
)


def _find(evidence: Evidence) -> Iterator[Finding]:
    cell = evidence.generation_cell
    work = None if cell is None else cell.work_of("decode")
    if cell is None or cell.step is None or work is None or not work.reached or work.bound is None:
        return
    time = forward_time(cell)
    worth = max(0.0, 1 - work.reached) * time
    reached = units.percent(work.reached)
    explained = work.reached >= LEAST_EXPLAINED
    limit = "memory" if work.bound == "memory" else "arithmetic"
    yield Finding(
        id="decode-bound",
        severity="info" if work.reached >= EXPLAINED else severity(share(worth, evidence.time)),
        title=f"Decode is bound by {limit} at {reached} of the bound"
        if explained
        else f"A decode step is far from its bound: {reached} of it",
        evidence=f"A step takes {units.time(cell.step.value)} {shape(cell)}, "
        f"at least {units.time(work.lower_bound)} under the device's roofs{_amounts(work)}; "
        f"{decode_count(cell)} steps a call.",
        remedy=(_REMEDIES[work.bound] if explained else "")
        + (_STARTING if work.reached < EXPLAINED else ""),
        time=time,
        worth=worth,
    )


def _amounts(work: StageWork) -> str:
    parts = (
        (work.weight_bytes, "weights"),
        (work.cache_bytes, "cache"),
        (work.activation_bytes, "activations"),
    )
    sizes = [f"{units.size(size)} of {name}" for size, name in parts if size]
    return f", for {', '.join(sizes)} and {units.count(work.flops)} FLOPs" if sizes else ""


RULE = Rule(
    "decode-bound",
    _find,
    source="https://huggingface.co/docs/transformers/llm_optims",
)
