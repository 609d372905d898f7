"""Layers that do more than they need to."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    Evidence,
    calls_further,
    operators_above,
    shapes_of,
)
from torchgauge.analyze.findings.rule import NOTICEABLE, noticeable, rule, share
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name, own_nodes

# A layer stands out from so many times the median of its siblings, of which so many are needed.
TIMES_SIBLINGS = 3.0
MIN_SIBLINGS = 3
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_FORWARD = ("", "forward")
_TRAINING = ("backward", "recompute", "optimizer", "zero_grad")
_DROPOUT = ("aten::native_dropout", "aten::bernoulli_")
_STATISTICS = re.compile(r"bn_fw_tr|batch_norm_collect_statistics|BatchNormFwdTrain")
# Of a layer or two nobody asks; an own seed or noise has these operators too.
NOTED = 0.005


@rule("slow-sibling", order="first")
def slow_sibling(evidence: Evidence) -> Iterator[Finding]:
    """Find the layer that takes far longer than those at the same place of other blocks."""
    places: dict[tuple[str, str, str], list[Node]] = {}
    for node in evidence.nodes:
        place = _NUMBER.sub("*", node.path) if node.kind == "layer" and node.time else ""
        if "*" in place and (shape := _input_shape(node)):
            # What a list holds itself may be anything; blocks have the same parts.
            kind = node.row.type if place.endswith("*") else ""
            places.setdefault((place, kind, shape), []).append(node)
    slow = {max(layers, key=_shortest): layers for layers in places.values() if _stands_out(layers)}
    # A layer is as slow as one that it calls.
    inner = [s for s in slow if not any(o.path.startswith(f"{s.path}.") for o in slow)]
    layer = max(inner, key=lambda layer: layer.time or 0.0, default=None)
    if layer is None:
        return
    time, siblings = layer.time or 0.0, [other for other in slow[layer] if other is not layer]
    usual = statistics.median(other.time or 0.0 for other in siblings)
    if time - usual < NOTICEABLE * evidence.time:
        return
    source = f", {layer.row.source}," if layer.row.source else ""
    yield slow_sibling.costs(
        (time, evidence.time),
        worth=time - usual,
        title=f"{layer.path} ({layer.row.type}) takes {units.significant(time / usual)} times what "
        f"its {len(siblings):,} siblings take",
        evidence=f"{units.time(time, 3)}; the others at {_NUMBER.sub('*', layer.path)} take "
        f"{units.time(usual, 3)} in the median, of inputs of the same shape.",
        remedy=f"Compare its forward{source} with that of {siblings[0].path} "
        f"({siblings[0].row.type}).",
        node=layer,
    )


def _stands_out(layers: list[Node]) -> bool:
    """Whether neither its siblings nor its FLOPs explain the time of the slowest of these layers.

    On the host its shortest time says so as well, to which other programs have added least.
    """
    slowest = max(layers, key=_shortest)
    siblings = [layer for layer in layers if layer is not slowest]
    if len(siblings) < MIN_SIBLINGS:
        return False
    flops = statistics.median(layer.flops or 0 for layer in siblings)
    ratio = TIMES_SIBLINGS * max((slowest.flops or 0) / flops if flops else 1.0, 1.0)
    usual = statistics.median(layer.time or 0.0 for layer in siblings)
    shortest = statistics.median(map(_shortest, siblings))
    return (slowest.time or 0.0) >= ratio * usual and _shortest(slowest) >= ratio * shortest


def _shortest(layer: Node) -> float:
    shortest = layer.total("shortest") if layer.device_time is None else None
    return (layer.time or 0.0) if shortest is None else shortest * 1e-9


def _input_shape(layer: Node) -> str:
    """Return the shape that the first operator of a layer's forward takes; "" if unknown."""
    forward = (
        node for node in layer.walk() if node.kind == "operator" and node.row.phase in _FORWARD
    )
    return str(next((shape for node in forward for shape in shapes_of(node) if shape), ""))


@rule(
    "training-mode",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"
    "#torch.nn.Module.eval",
)
def training_mode(evidence: Evidence) -> Iterator[Finding]:
    """Find dropout or batch statistics in a run that trains nothing."""
    if any(node.row.phase in _TRAINING or "Backward" in node.name for node in evidence.nodes):
        return
    dropped = [node for node in evidence.calls_of(*_DROPOUT) if _drops_out(node)]
    statistics = [calls.node for calls in evidence.kernels if _STATISTICS.search(calls.name)]
    time = sum(evidence.total_time(node) for node in dropped + statistics)
    if share(time, evidence.time) < NOTED:
        return
    longest = max(dropped + statistics, key=lambda node: evidence.total_time(node))
    count = sum(node.calls for node in dropped + statistics)
    kinds = " and ".join(
        text for text, nodes in (("dropout", dropped), ("batch statistics", statistics)) if nodes
    )
    yield training_mode.finding(
        "warning",
        title=f"The model runs in training mode ({kinds}), and nothing is trained",
        evidence=f"{units.time(time)} in {count:,} call{'s' * (count != 1)}, "
        "and no backward pass in what was recorded"
        + (f"; the longest is in {longest.path}." if longest.path else "."),
        remedy="model.eval() before inference; its results are random without it. In "
        "functional.dropout give training=self.training.",
        time=evidence.within(time),
        worth=evidence.within(time),
        node=longest,
        view="tree",
    )


def _drops_out(node: Node) -> bool:
    """Whether an operator draws the mask of a dropout."""
    return any(base_name(above.name) == "aten::dropout" for above in operators_above(node))


class _Composition(NamedTuple):
    """What a layer that torch has whole is made of: its class, one operator of each set."""

    type: re.Pattern[str]
    operators: tuple[frozenset[str], ...]
    remedy: str


_COMPOSITIONS = (
    _Composition(
        re.compile(r"RMSNorm|T5LayerNorm", re.IGNORECASE),
        (frozenset({"aten::rsqrt", "aten::sqrt"}), frozenset({"aten::mean"})),
        "torch.nn.RMSNorm (torch.nn.functional.rms_norm) is one kernel on GPUs; torch.compile "
        "makes one of them everywhere.",
    ),
    _Composition(
        re.compile(r"gelu", re.IGNORECASE),
        (frozenset({"aten::tanh", "aten::erf"}), frozenset({"aten::mul"})),
        "torch.nn.functional.gelu(x, approximate='tanh') is one kernel.",
    ),
)
# Operators over the whole input; fewer have little to gain.
ENOUGH_OPERATORS = 4


@rule(
    "composed-layers",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html",
    explains=("unfused-elementwise", "casts"),
)
def composed_layers(evidence: Evidence) -> Iterator[Finding]:
    """Find normalisations and activations made of operators for which torch has one."""
    for composition in _COMPOSITIONS:
        layers = [layer for layer in evidence.leaves if _is_composed(layer, composition)]
        if not (time := noticeable(evidence, (layer.time or 0.0 for layer in layers))):
            continue
        longest = max(layers, key=lambda layer: layer.time or 0.0)
        operators = _working_operators(longest)
        names = list(dict.fromkeys(base_name(node.name) for node in operators))
        yield composed_layers.costs(
            (time, evidence.time),
            title=f"{longest.row.type} is written out, and takes {evidence.part(time)}",
            evidence=f"{units.time(time)} in {len(layers):,} layer{'s' * (len(layers) != 1)} of "
            f"{sum(node.calls for node in operators):,} operators each: {', '.join(names[:6])}.",
            remedy=composition.remedy,
            node=longest,
        )


def _is_composed(layer: Node, composition: _Composition) -> bool:
    if not composition.type.search(layer.row.type):
        return False
    names = {base_name(node.name) for node in own_nodes(layer)}
    count = sum(node.calls for node in _working_operators(layer))
    has_all = all(names & needed for needed in composition.operators)
    return has_all and count >= ENOUGH_OPERATORS * max(layer.calls, 1)


def _working_operators(layer: Node) -> list[Node]:
    """Return the operators of a layer that do elementwise work or reduce."""
    return [
        node
        for node in own_nodes(layer)
        if node.kind == "operator"
        and category(base_name(node.name)) in ("elementwise", "reduction")
        and not calls_further(node)
    ]


_DENSE = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
_LOOKUPS = ("aten::embedding", "aten::_embedding_bag")


@rule(
    "dense-embedding-gradient",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
)
def dense_embedding_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Find gradients of embeddings with a row for every entry of the table.

    Not of a table that a product reads too, as the head of a language model does: its gradient
    has a row for every entry in any case.
    """
    if not evidence.calls_of(*_DENSE):
        return
    by_lookup_alone = _tables_by_lookup_alone(evidence)
    gradients = [node for node in evidence.calls_of(*_DENSE) if node.path in by_lookup_alone]
    if not (time := noticeable(evidence, (evidence.total_time(node) for node in gradients))):
        return
    longest = max(gradients, key=lambda node: evidence.total_time(node))
    calls = sum(node.calls for node in gradients)
    yield dense_embedding_gradient.costs(
        (time, evidence.time),
        title=f"Dense gradients of embeddings take {evidence.part(time)}",
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


@rule("recomputation", source="https://docs.pytorch.org/docs/stable/checkpoint.html")
def recomputation(evidence: Evidence) -> Iterator[Finding]:
    """Find activations that are computed a second time for the backward pass."""
    recomputed = [
        execution for execution in evidence.executions if execution.node.row.phase == "recompute"
    ]
    if not (time := noticeable(evidence, (execution.time for execution in recomputed))):
        return
    layer, longest = evidence.longest_layer(recomputed)
    yield recomputation.costs(
        (time, evidence.time),
        title=f"Activation checkpointing takes {evidence.part(time)}",
        evidence=f"{units.time(time)} of the forward pass run again in the backward pass"
        + (f", {units.time(longest)} of it in {layer}." if layer else "."),
        remedy="If memory allows, checkpoint fewer layers, or keep what is dear to compute: "
        "context_fn=functools.partial(create_selective_checkpoint_contexts, […]).",
        path=layer,
    )
