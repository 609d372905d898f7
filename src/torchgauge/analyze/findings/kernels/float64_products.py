"""Matrix products and convolutions in double precision."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import PRODUCTS, Evidence, Execution
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

_DOUBLE = re.compile(r"dgemm|f64|(?<!\w)d(?:gemv|conv)|<double\b|_DB_")


def _find(evidence: Evidence) -> Iterator[Finding]:
    products = evidence.executed(*PRODUCTS)
    if evidence.runs_on_host:
        double = _on_host(evidence, products)
    else:
        double = [execution for execution in products if _DOUBLE.search(execution.node.name)]
    time = evidence.within(sum(execution.time for execution in double))
    if share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(double, key=lambda execution: execution.time)
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Products in float64 take {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)}, most of it in {longest.node.name[:60]}"
        + (f" of {longest.node.path}." if longest.node.path else "."),
        remedy="Cast the model and its inputs to float32: .float(). Data from NumPy is float64: "
        "torch.as_tensor(data, dtype=torch.float32).",
        node=longest.node,
    )


def _on_host(evidence: Evidence, products: list[Execution]) -> list[Execution]:
    """Return the products of layers that compute in float64 alone, by the count of their work."""
    cost = None if evidence.profile is None else evidence.profile.cost
    if cost is None:
        return []
    dtypes: dict[str, set[str]] = {}
    for row in cost.rows:
        if row.matmul_flops:
            dtypes.setdefault(cost.nodes[row.node].path, set()).add(row.dtype)
    return [execution for execution in products if dtypes.get(execution.node.path) == {"float64"}]


RULE = Rule(
    "float64-products",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html",
    jax_remedy="Leave jax_enable_x64 off, and give float32.",
)
