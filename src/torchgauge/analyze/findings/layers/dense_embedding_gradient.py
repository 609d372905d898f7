"""Gradients of embeddings with a row for every entry of the table.

Not of a table that a product reads too, as the head of a language model does: its gradient has a
row for every entry in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, shapes_of
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node

_DENSE = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
_LOOKUPS = ("aten::embedding", "aten::_embedding_bag")


def _find(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.calls_of(*_DENSE):
        return
    by_lookup_alone = _tables_by_lookup_alone(evidence)
    gradients = [node for node in evidence.calls_of(*_DENSE) if node.path in by_lookup_alone]
    time = evidence.within(sum(_time(evidence, node) for node in gradients))
    if share(time, evidence.time) < NOTICEABLE:
        return
    longest = max(gradients, key=lambda node: _time(evidence, node))
    calls = sum(node.calls for node in gradients)
    yield RULE.costs(
        time,
        evidence.time,
        title=f"Dense gradients of embeddings take {units.percent(time / evidence.time)} of the "
        "time",
        evidence=f"{units.time(time)} in {calls:,} call{'s' * (calls != 1)} of {longest.name}: a "
        "row for every entry of the table, and the optimizer reads them all.",
        remedy="torch.nn.Embedding(…, sparse=True) with torch.optim.SparseAdam or SGD, if few "
        "entries occur in a batch.",
        node=longest,
    )


def _tables_by_lookup_alone(evidence: Evidence) -> set[str]:
    """Return the layers that look up tables of which no product takes one of the same shape."""
    multiplied = {
        frozenset(shape)
        for name, nodes in evidence.operators.items()
        if category(name) == "matrix product"
        for node in nodes
        for shape in map(_matrix, shapes_of(node))
    }
    tables: dict[str, set[frozenset[int]]] = {}
    for node in evidence.calls_of(*_LOOKUPS):
        for shape in map(_matrix, shapes_of(node)[:1]):
            tables.setdefault(node.path, set()).add(frozenset(shape))
    return {path for path, shapes in tables.items() if not shapes & (multiplied | {frozenset()})}


def _matrix(shape: object) -> tuple[int, ...]:
    """Return the sizes of a matrix; () of anything else."""
    sizes = tuple(shape) if isinstance(shape, list) else ()
    return sizes if len(sizes) == 2 and all(isinstance(size, int) for size in sizes) else ()


def _time(evidence: Evidence, node: Node) -> float:
    return (node.host_time if evidence.runs_on_host else node.device_time) or 0.0


RULE = Rule(
    "dense-embedding-gradient",
    _find,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
)
