"""Operators that a fused kernel would replace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    Evidence,
    Execution,
    calls_further,
    operators_above,
    shapes_of,
)
from torchgauge.analyze.findings.rule import noticeable, rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import Node, base_name, own_nodes

_SOFTMAX = "aten::_softmax"
_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_FUSED = "scaled_dot_product"

Scores = tuple[int, int]  # queries and keys


class _Attention(NamedTuple):
    """A layer that computes attention: seconds of all that reads or writes scores."""

    layer: Node
    scores: Scores
    calls: int
    time: float


@rule(
    "eager-attention",
    source="https://docs.pytorch.org/docs/stable/generated/"
    "torch.nn.functional.scaled_dot_product_attention.html",
    explains=("unfused-elementwise",),
    jax_remedy="jax.nn.dot_product_attention(implementation='cudnn').",
)
def eager_attention(evidence: Evidence) -> Iterator[Finding]:
    """Find attention written out: a product, a softmax over its result, another product."""
    if not evidence.calls_of(_SOFTMAX):
        return
    layers = [node for node in evidence.nodes if node.kind in ("layer", "model", "bucket")]
    attentions = [written for layer in layers if (written := _attention(evidence, layer))]
    if not (time := noticeable(evidence, (attention.time for attention in attentions))):
        return
    longest = max(attentions, key=lambda attention: attention.time)
    queries, keys = longest.scores
    calls = sum(attention.calls for attention in attentions)
    yield eager_attention.costs(
        (time, evidence.time),
        title=f"Attention written out takes {evidence.part(time)}",
        evidence=f"{units.time(time)} for {calls:,} call{'s' * (calls != 1)} of softmax, the "
        f"products around it, and everything else on {queries:,} × {keys:,} scores"
        + (f", first in {longest.layer.path}." if longest.layer.path else "."),
        remedy="torch.nn.functional.scaled_dot_product_attention, which keeps no scores; of "
        "transformers: attn_implementation='sdpa'.",
        path=longest.layer.path,
        search=_SOFTMAX,
    )


def _attention(evidence: Evidence, layer: Node) -> _Attention | None:
    """Return a layer's own attention; None unless shapes say that it has both products."""
    operators = [node for node in own_nodes(layer) if node.kind == "operator"]
    if not any(base_name(node.name) == _SOFTMAX for node in operators):
        return None
    operators = [node for node in operators if not _is_fused(node)]
    softmaxes = [node for node in operators if base_name(node.name) == _SOFTMAX]
    written, read = _products(operators)
    shapes = {_last_two(shapes_of(node)[:1]) for node in softmaxes}
    scores = {pair for pair in shapes & written & read if pair is not None and pair[1] > 1}
    if not scores:
        return None
    time = sum(evidence.self_time(node) for node in operators if _is_part(node, scores))
    calls = sum(node.calls for node in softmaxes if _last_two(shapes_of(node)[:1]) in scores)
    return _Attention(layer, max(scores), calls, time)


def _products(operators: list[Node]) -> tuple[set[Scores | None], set[Scores | None]]:
    """Return the last two sizes of what batched products write, and of what they read first."""
    written: set[Scores | None] = set()
    read: set[Scores | None] = set()
    for node in operators:
        if base_name(node.name) in _PRODUCTS:
            first, second = (_last_two([shape]) for shape in _operands(node))
            read.add(first)
            if first and second:
                written.add((first[0], second[1]))
    return written, read


def _operands(node: Node) -> list[Any]:
    """Return the two operands of a batched product; `baddbmm` has what it adds to before them."""
    shapes = shapes_of(node)
    first = 1 if base_name(node.name) == "aten::baddbmm" else 0
    return [*shapes[first : first + 2], [], []][:2]


def _is_part(node: Node, scores: set[Scores]) -> bool:
    """Whether an operator works on scores, or arranges operands for a product that does."""
    product = next(
        (above for above in operators_above(node) if base_name(above.name) == "aten::matmul"), None
    )
    siblings = [] if product is None else product.children
    return _touches(node, scores) or any(
        base_name(other.name) in _PRODUCTS and _touches(other, scores) for other in siblings
    )


def _touches(node: Node, scores: set[Scores]) -> bool:
    """Whether an operator reads or writes scores, transposed for their gradient or not."""
    shapes = shapes_of(node)
    pairs = {_last_two([shape]) for shape in shapes}
    if base_name(node.name) in _PRODUCTS:
        first, second = (_last_two([shape]) for shape in _operands(node))
        pairs |= {(first[0], second[1])} if first and second else set()
    return any(pair in scores or (pair and pair[::-1] in scores) for pair in pairs)


def _last_two(shapes: list[Any]) -> Scores | None:
    """Return the last two sizes of the first shape, if it has three or more."""
    shape = shapes[0] if shapes else None
    if not isinstance(shape, list) or len(shape) < 3:
        return None
    queries, keys = shape[-2:]
    return (queries, keys) if isinstance(queries, int) and isinstance(keys, int) else None


def _is_fused(node: Node) -> bool:
    """Whether it is part of torch's own attention."""
    around: Node | None = node
    while around is not None and around.kind == "operator":
        if _FUSED in around.name:
            return True
        around = around.parent
    return False


_DROPOUT = ("aten::dropout", "aten::native_dropout", "aten::bernoulli_")
_MATH = "aten::_scaled_dot_product_attention_math"


@rule(
    "math-attention",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html",
    explains=("unfused-elementwise",),
)
def math_attention(evidence: Evidence) -> Iterator[Finding]:
    """Find Torch's attention in its plain implementation, which keeps all scores."""
    calls = evidence.calls_of(_MATH)
    if not (time := noticeable(evidence, (evidence.total_time(node) for node in calls))):
        return
    longest = max(calls, key=lambda node: evidence.total_time(node))
    count = sum(node.calls for node in calls)
    yield math_attention.costs(
        (time, evidence.time),
        title=f"Attention without a fused kernel takes {evidence.part(time)}",
        evidence=f"{units.time(time)} in {count:,} call{'s' * (count != 1)} of "
        f"_scaled_dot_product_attention_math on {longest.row.shapes[:60] or 'unknown shapes'}.",
        remedy=_fused_remedy(evidence, calls),
        node=longest,
    )


def _fused_remedy(evidence: Evidence, calls: list[Node]) -> str:
    """Return what the fused kernels need, and where there is none to force."""
    below = {base_name(node.name) for call in calls for node in call.walk()}
    if evidence.runs_on_host and below & set(_DROPOUT):
        return "dropout_p=0: no fused kernel of a processor has it; forced, it ends the program."
    return (
        "Change what a fused kernel does not take: type, head size, a mask with gradients. "
        "sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]) around one call "
        "says why in warnings, and ends the program where none fits (No available kernel)."
    )


# A share that fusing changes noticeably: half of it may remain.
NOTICEABLE_WHEN_FUSED = 0.2
# Fewer in a layer have nothing to be fused with but products, which takes other kernels.
CHAIN = 2
_PHASES = ("optimizer", "zero_grad")
_GENERATED = ("triton_", "cpp_fused_")


@rule(
    "unfused-elementwise",
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#fuse-operations",
    jax_remedy="Put the whole step into one jax.jit: XLA makes one kernel of a chain.",
)
def unfused_elementwise(evidence: Evidence) -> Iterator[Finding]:
    """Find elementwise operations in a row, each of which reads and writes whole tensors."""
    if any(execution.node.name.startswith(_GENERATED) for execution in evidence.executions):
        return
    by_layer: dict[str, list[Execution]] = {}
    for execution in evidence.executed("elementwise", "copy", "layout"):
        if _is_elementwise(execution):
            by_layer.setdefault(execution.node.path, []).append(execution)
    chains = {
        path: executions
        for path, executions in by_layer.items()
        if sum(execution.node.calls for execution in executions) >= CHAIN
        and any(execution.category == "elementwise" for execution in executions)
    }
    time = evidence.within(
        sum(execution.time for executions in chains.values() for execution in executions)
    )
    if share(time, evidence.time) < NOTICEABLE_WHEN_FUSED:
        return
    calls = sum(execution.node.calls for executions in chains.values() for execution in executions)
    # What is in no layer has no place to look at: a layer with less goes first.
    longest = max(
        chains, key=lambda path: (path != "", sum(execution.time for execution in chains[path]))
    )
    by_time = sorted(chains[longest], key=lambda execution: -execution.time)
    operators = dict.fromkeys(filter(None, map(_operator, by_time)))
    yield unfused_elementwise.costs(
        (time, evidence.time),
        title=f"Elementwise operations one by one take {evidence.part(time)}",
        evidence=f"{units.time(time)} in {calls:,} calls, each of which reads and writes memory"
        + (f"; most in {longest}" if longest else "")
        + (f": {', '.join(list(operators)[:5])}." if operators else "."),
        remedy="torch.compile(model) makes one kernel of a chain.",
        path=longest,
    )


def _is_elementwise(execution: Execution) -> bool:
    """Whether a compiler would make it part of its neighbours: concatenations and casts too."""
    if execution.node.row.phase in _PHASES or calls_further(execution.node):
        return False
    if execution.category == "elementwise":
        return True
    if execution.node.row.kernel is not None and execution.node.row.kernel.work != "kernel":
        return False
    if execution.category == "layout":
        return _operator(execution) == "aten::cat"
    operators = [base_name(operator.name) for operator in operators_above(execution.node)]
    return "aten::_to_copy" in operators


def _operator(execution: Execution) -> str:
    """Return the operator that ran it, "" where that is not known."""
    if execution.node.kind == "operator":
        return base_name(execution.node.name)
    above = operators_above(execution.node)
    return base_name(above[0].name) if above else ""
