"""Elementwise operations that each read and write their tensors anew."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import (
    Evidence,
    Piece,
    calls_further,
    operators_above,
)
from torchgauge.analyze.findings.rule import Rule, severity, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name

# A share that fusing changes noticeably: half of it may remain.
MANY = 0.2
# Fewer in a layer have nothing to be fused with but products, which takes other kernels.
CHAIN = 2
_PHASES = ("optimizer", "zero_grad")
_GENERATED = ("triton_", "cpp_fused_")


def _find(evidence: Evidence) -> Iterator[Finding]:
    if _is_compiled(evidence):
        return
    by_layer: dict[str, list[Piece]] = {}
    for piece in evidence.pieces:
        if _is_elementwise(piece):
            by_layer.setdefault(piece.node.path, []).append(piece)
    chains = {
        path: pieces
        for path, pieces in by_layer.items()
        if sum(piece.node.calls for piece in pieces) >= CHAIN
        and any(piece.category == "elementwise" for piece in pieces)
    }
    time = evidence.within(sum(piece.time for pieces in chains.values() for piece in pieces))
    if share(time, evidence.time) < MANY:
        return
    calls = sum(piece.node.calls for pieces in chains.values() for piece in pieces)
    # What is in no layer has no place to look at: a layer with less goes first.
    longest = max(chains, key=lambda path: (path != "", sum(piece.time for piece in chains[path])))
    by_time = sorted(chains[longest], key=lambda piece: -piece.time)
    operators = dict.fromkeys(filter(None, map(_operator, by_time)))
    yield Finding(
        id="unfused-elementwise",
        severity=severity(share(time, evidence.time)),
        title=f"Elementwise operations one by one take "
        f"{units.percent(time / evidence.time)} of the time",
        evidence=f"{units.time(time)} in {calls:,} calls, each of which reads and writes memory"
        + (f"; most in {longest}" if longest else "")
        + (f": {', '.join(list(operators)[:5])}." if operators else "."),
        remedy="torch.compile(model) makes one kernel of a chain.",
        time=time,
        worth=time,
        path=longest,
        view="tree",
    )


def _is_compiled(evidence: Evidence) -> bool:
    return any(piece.node.name.startswith(_GENERATED) for piece in evidence.pieces)


def _is_elementwise(piece: Piece) -> bool:
    """Whether a compiler would make it part of its neighbours: concatenations and casts too."""
    if piece.node.row.phase in _PHASES or calls_further(piece.node):
        return False
    if piece.category == "elementwise":
        return True
    operators = [base_name(operator.name) for operator in operators_above(piece.node)]
    if piece.node.row.kernel is not None and piece.node.row.kernel.work != "kernel":
        return False
    is_cast = piece.category == "copy" and "aten::_to_copy" in operators
    return is_cast or (piece.category == "layout" and _operator(piece) == "aten::cat")


def _operator(piece: Piece) -> str:
    """Return the operator that ran it, "" where that is not known."""
    if piece.node.kind == "operator":
        return base_name(piece.node.name)
    above = operators_above(piece.node)
    return base_name(above[0].name) if above else ""


RULE = Rule(
    "unfused-elementwise",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#fuse-operations",
    jax_remedy="Put the whole step into one jax.jit: XLA makes one kernel of a chain.",
)
