"""Matrix products whose sizes keep them from the fast kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, shapes_of, short_name
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

# CUTLASS's names say how many elements a load takes: 16 bytes are 8 of half precision, 4 of TF32.
# In half precision cuBLAS of Volta goes without Tensor Cores where a size is no multiple of 8.
_UNALIGNED = re.compile(r"_align[12](?!\d)|fp16_sgemm_fp16|volta_(?:fp16_)?hgemm")


def _find(evidence: Evidence) -> Iterator[Finding]:
    products = [
        calls
        for calls in evidence.kernels
        if _UNALIGNED.search(calls.name) and "simt" not in calls.name
    ]
    time = evidence.within(sum(calls.time for calls in products))
    if share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(products, key=lambda calls: calls.time)
    operator = longest.node.parent
    shapes = [] if operator is None else [shape for shape in shapes_of(operator) if shape]
    on_shapes = f" on {' and '.join(_written(shape) for shape in shapes)}" if shapes else ""
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Products on unaligned sizes take {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {sum(calls.kernel.calls for calls in products):,} calls "
        f"of kernels that load one or two elements at a time, most of it in "
        f"{short_name(longest.name)}{on_shapes}.",
        remedy="Pad channels, vocabulary and sequence to multiples of 8 (fp32: 4), better 64.",
        node=longest.node,
        view="tables",
    )


def _written(shape: object) -> str:
    return "×".join(map(str, shape)) if isinstance(shape, list) else str(shape)


RULE = Rule(
    "unaligned-products",
    _find,
    source="https://docs.nvidia.com/deeplearning/performance/"
    "dl-performance-matrix-multiplication/index.html#requirements-tc",
)
