"""Products of one row, which wait for the weights to be read."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    Evidence,
    Piece,
    operators_above,
    shapes_of,
)
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name

# Where they are most of the work, it is a decoder or a model that serves one request at a time.
MOST = 0.5
# The place of the operand whose rows are the batch's.
_OPERANDS = {"aten::mm": 0, "aten::addmm": 1, "aten::mv": None, "aten::addmv": None}


def _find(evidence: Evidence) -> Iterator[Finding]:
    products = [piece for piece in evidence.pieces if _has_one_row(piece)]
    time = evidence.within(sum(piece.time for piece in products))
    if share(time, sum(piece.time for piece in evidence.pieces)) < MOST:
        return
    longest = max(products, key=lambda piece: piece.time)
    yield Finding(
        id="single-row-products",
        severity=severity(share(time, evidence.time)),
        title=f"Products of a single row take {units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {sum(piece.node.calls for piece in products):,} calls "
        "that read each weight for two operations: memory bounds them, not arithmetic.",
        remedy="Several requests in one batch cost hardly more than one; else smaller weights "
        "(int8, int4 weights).",
        time=time,
        worth=None,
        path=longest.node.path,
        node=longest.node.index,
        view="tree",
    )


def _has_one_row(piece: Piece) -> bool:
    """Whether it is a product with a matrix of one row, by the shapes that its operator took."""
    if piece.category != "matrix product":
        return False
    above = operators_above(piece.node)
    operator: Node | None = piece.node if piece.node.kind == "operator" else (above or [None])[0]
    name = "" if operator is None else base_name(operator.name)
    if operator is None or name not in _OPERANDS:
        return False
    place = _OPERANDS[name]
    shapes = shapes_of(operator)
    if place is None:
        return True
    return len(shapes) > place and isinstance(shapes[place], list) and shapes[place][:1] == [1]


RULE = Rule(
    "single-row-products",
    _find,
    source="https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/"
    "index.html#understand-perf",
)
