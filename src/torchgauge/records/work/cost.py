"""How much work a call does: operations and bytes by layer and operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from torchgauge.records.record import How, MeasurementWarning, Record

Phase = Literal["forward", "backward", "recompute"]


class CostRow(Record, frozen=True, kw_only=True):
    """What the calls of one operator did directly in one layer, in one phase, on one dtype.

    `node` is an index of `Cost.nodes`. `matmul_flops`, `causal_matmul_flops` and `vector_flops` are
    FLOP, `integer_ops` operations, `bytes` compulsory traffic; sums over `calls`. The
    operations of an operator without a formula (`has_formula` False) are in no figure.
    """

    node: int
    operator: str
    phase: Phase
    dtype: str
    calls: int
    matmul_flops: int = 0
    causal_matmul_flops: int = 0
    vector_flops: int = 0
    integer_ops: int = 0
    bytes: int = 0
    has_formula: bool = True
    estimated: bool = False

    def __post_init__(self) -> None:
        """Check nothing: thousands of rows hold whole numbers alone."""


class CostNode(Record, frozen=True, kw_only=True):
    """One layer call path: `parent` is the index of the node it was called from, −1 for the root.

    `path` is the module's qualified name, `kind` its class, `parameters` the elements of its own
    parameters and its submodules', each once; None of a callable or a program whose parameters
    nobody knows. Where the forward raised, `inputs` and `outputs` are the shapes and types of the
    tensors that the layer's last call took and, if it ended, returned: "2×8 float32".
    """

    name: str
    path: str
    kind: str
    parent: int
    calls: int
    parameters: int | None = 0
    inputs: str | None = None
    outputs: str | None = None

    def __post_init__(self) -> None:
        """Check names alone: there is no number that could fail to be finite."""
        if not (self.name.isascii() and self.path.isascii() and self.kind.isascii()):
            super().__post_init__()


# An operator's name for work that no operator showed: a request over a network, another library.
OUTSIDE = "outside of torch"
# An operator's name for what a forward that raised would have done from there.
NOT_RUN = "not run"


def known_part(amount: int, *, at_least: bool) -> int | None:
    """Return a sum that may lack a part; None where nothing of it is known, since that is not 0."""
    return None if at_least and not amount else amount


class NotCalled(Record, frozen=True, kw_only=True):
    """A module that a call left alone: `parameters` elements, its submodules' with them."""

    path: str
    kind: str
    parameters: int


class Work(NamedTuple):
    """Sums over rows. `flops` is matmul + vector; `at_least` where an operator is unknown."""

    calls: int = 0
    matmul_flops: int = 0
    causal_matmul_flops: int = 0
    vector_flops: int = 0
    integer_ops: int = 0
    bytes: int = 0
    unknown_calls: int = 0
    estimated: bool = False

    @property
    def flops(self) -> int:
        """Floating-point operations: products and vector work."""
        return self.matmul_flops + self.vector_flops

    @property
    def macs(self) -> int:
        """Multiply-accumulates of products: half of their FLOPs."""
        return self.matmul_flops // 2

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte; None without traffic."""
        return self.flops / self.bytes if self.bytes else None

    @property
    def at_least(self) -> bool:
        """True where an operator without formula took part."""
        return self.unknown_calls > 0

    def plus(self, other: Work) -> Work:
        """Return the sums of both."""
        return Work(
            self.calls + other.calls,
            self.matmul_flops + other.matmul_flops,
            self.causal_matmul_flops + other.causal_matmul_flops,
            self.vector_flops + other.vector_flops,
            self.integer_ops + other.integer_ops,
            self.bytes + other.bytes,
            self.unknown_calls + other.unknown_calls,
            self.estimated or other.estimated,
        )

    def times(self, number: int) -> Work:
        """Return the sums of several."""
        return Work(
            number * self.calls,
            number * self.matmul_flops,
            number * self.causal_matmul_flops,
            number * self.vector_flops,
            number * self.integer_ops,
            number * self.bytes,
            number * self.unknown_calls,
            self.estimated,
        )


class LayerCost(NamedTuple):
    """A node of the tree: `work` is that of the layer itself and of all that it calls.

    `number` is its place in `Cost.nodes`.
    """

    node: CostNode
    number: int
    own: Work
    work: Work
    children: tuple[LayerCost, ...]

    def __repr__(self) -> str:
        return f"<LayerCost {self.node.path or self.node.name!r}: {self.work.flops:,} FLOP>"

    def walk(self, depth: int | None = None) -> Iterator[tuple[int, LayerCost]]:
        """Yield (level, layer) from here downwards, to `depth` levels below, in calling order."""
        pending = [(0, self)]
        while pending:
            level, layer = pending.pop()
            yield level, layer
            if depth is None or level < depth:
                pending += [(level + 1, child) for child in reversed(layer.children)]


class Cost(Record, frozen=True, kw_only=True):
    """The work of one call, counted from shapes: every figure is a sum over `rows`.

    Conventions: 1 MAC is 2 FLOP. `matmul_flops` is products, `vector_flops` elementwise work and
    reductions, `integer_ops` is in neither. `bytes` is compulsory traffic per operator, inputs read
    and outputs written once: it sees neither cache reuse nor what a kernel reads again.
    `executed_flops` adds recomputation (activation checkpointing) to the model's own `flops`.
    `counted_on` is "cpu", "cuda", "meta" or "fake"; `collapsed` names scripted or compiled modules
    whose insides are not seen as layers; `not_called` has the modules with parameters that did not
    run. `retained_for_backward` is the bytes of tensors that the
    forward pass keeps for the backward pass beside parameters, buffers and inputs; None without it.
    `kernels` counts the forward's calls of the kernels that were assumed of a GPU, where tensors
    without values were counted: "flash attention", "efficient attention", "math attention", "cuDNN
    LSTM" and others.
    `flops_range` is the least and the most FLOPs of several calls, where random numbers or the
    calls before decide on their work: all other figures are of the first; None where each call does
    the same.
    """

    nodes: tuple[CostNode, ...]
    rows: tuple[CostRow, ...]
    backward: bool
    counted_on: str
    collapsed: tuple[str, ...] = ()
    not_called: tuple[NotCalled, ...] = ()
    retained_for_backward: int | None = None
    kernels: dict[str, int] = msgspec.field(default_factory=dict)
    flops_range: tuple[int, int] | None = None
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "counted"

    def total(self, phases: Iterable[Phase] = ("forward", "backward")) -> Work:
        """Return the sums over the phases named."""
        return _summed(row for row in self.rows if row.phase in phases)

    @property
    def exact_flops(self) -> int | None:
        """FLOPs of every call; None where a part is unknown, or calls differ."""
        return None if self.at_least or self.flops_range else self.flops

    @property
    def least_flops(self) -> int | None:
        """FLOPs that a call has at least; None where nothing of them is known."""
        flops, *_ = self.flops_range or (self.flops,)
        return known_part(flops, at_least=self.at_least)

    @property
    def matmul_flops(self) -> int:
        """FLOPs of products."""
        return self.total().matmul_flops

    @property
    def causal_matmul_flops(self) -> int:
        """FLOPs of products with causal attention at its exact lower triangle."""
        return self.total().causal_matmul_flops

    @property
    def vector_flops(self) -> int:
        """FLOPs of elementwise operators and reductions."""
        return self.total().vector_flops

    @property
    def integer_ops(self) -> int:
        """Operations on integers, which are in no FLOPs."""
        return self.total().integer_ops

    @property
    def flops(self) -> int:
        """The model's FLOPs; a lower bound where `unknown` is not empty."""
        return self.total().flops

    @property
    def macs(self) -> int:
        """Multiply-accumulates: half of `matmul_flops`."""
        return self.total().macs

    @property
    def executed_flops(self) -> int:
        """FLOPs with those that recomputation repeats."""
        return self.total(("forward", "backward", "recompute")).flops

    @property
    def bytes(self) -> int:
        """Compulsory traffic in bytes, recomputation included."""
        return self.total(("forward", "backward", "recompute")).bytes

    @property
    def totals(self) -> dict[str, int | None]:
        """Every total by its name; lower bounds where `unknown_calls` is not 0, or None."""
        work = self.total()
        amounts = {
            "macs": work.macs,
            "flops": work.flops,
            "executed_flops": self.executed_flops,
            "matmul_flops": work.matmul_flops,
            "causal_matmul_flops": work.causal_matmul_flops,
            "vector_flops": work.vector_flops,
            "integer_ops": work.integer_ops,
            "bytes": self.bytes,
        }
        totals = {
            name: known_part(amount, at_least=work.at_least) for name, amount in amounts.items()
        }
        return {**totals, "unknown_calls": sum(self.unknown.values())}

    @property
    def intensity(self) -> float | None:
        """Executed FLOPs per byte; None without traffic."""
        return self.total(("forward", "backward", "recompute")).intensity

    @property
    def unknown(self) -> dict[str, int]:
        """Calls of each operator without formula, most first."""
        calls: dict[str, int] = {}
        for row in self.rows:
            if not row.has_formula:
                calls[row.operator] = calls.get(row.operator, 0) + row.calls
        return dict(sorted(calls.items(), key=lambda item: -item[1]))

    @property
    def at_least(self) -> bool:
        """True where an operator is unknown, so that totals are lower bounds."""
        return any(not row.has_formula for row in self.rows)

    @property
    def coverage(self) -> float | None:
        """The share of operator calls whose work is known; None without calls."""
        calls = sum(row.calls for row in self.rows)
        return sum(row.calls for row in self.rows if row.has_formula) / calls if calls else None

    @property
    def tree(self) -> LayerCost:
        """The layers by call path, each with its own work and that of all below it."""
        own: list[list[CostRow]] = [[] for _ in self.nodes]
        for row in self.rows:
            own[row.node].append(row)
        children: list[list[LayerCost]] = [[] for _ in self.nodes]
        for index in range(len(self.nodes) - 1, -1, -1):  # a parent comes before its children
            own_work = _summed(own[index])
            below = tuple(reversed(children[index]))
            work = own_work
            for child in below:
                work = work.plus(child.work)
            layer = LayerCost(self.nodes[index], index, own_work, work, below)
            if index == 0:
                return layer
            children[self.nodes[index].parent].append(layer)
        raise IndexError("a cost without nodes has no tree")

    def by_operator(self) -> dict[str, Work]:
        """Return the sums by operator, most FLOPs first, then most bytes."""
        return _grouped((row.operator, row) for row in self.rows)

    def by_type(self) -> dict[str, Work]:
        """Return the sums by the class of the layer that called the operators itself."""
        return _grouped((self.nodes[row.node].kind, row) for row in self.rows)


def _summed(rows: Iterable[CostRow]) -> Work:
    calls = matmul = causal = vector = integer = traffic = unknown = 0
    estimated = False
    for row in rows:
        calls += row.calls
        matmul += row.matmul_flops
        causal += row.causal_matmul_flops
        vector += row.vector_flops
        integer += row.integer_ops
        traffic += row.bytes
        unknown += 0 if row.has_formula else row.calls
        estimated |= row.estimated
    return Work(calls, matmul, causal, vector, integer, traffic, unknown, estimated)


def _grouped(rows: Iterable[tuple[str, CostRow]]) -> dict[str, Work]:
    groups: dict[str, list[CostRow]] = {}
    for name, row in rows:
        groups.setdefault(name, []).append(row)
    summed = {name: _summed(group) for name, group in groups.items()}
    return dict(sorted(summed.items(), key=lambda item: (-item[1].flops, -item[1].bytes)))
