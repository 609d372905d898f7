"""What torch.compile made of a model: graphs, breaks, recompilations, kernels."""

from __future__ import annotations

from torchgauge.records.record import How, Record


class CompiledKernel(Record, frozen=True, kw_only=True):
    """A kernel that the compiler wrote or chose, with what it does and for which layers.

    `operators` are those it was fused from. `layers` are empty where they cannot be told: kernels
    of the CPU name no source, so that only an operator which a graph has once says its layer.
    """

    name: str
    operators: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


class Compilation(Record, frozen=True, kw_only=True):
    """What was compiled while the model was measured; None where it had been compiled before.

    `graph_breaks` and `recompiles` count by reason, `compile_time` is in seconds. `layers` run
    inside of compiled graphs, where neither times nor ranges can tell them apart.
    """

    graphs: int | None = None
    graph_breaks: dict[str, int] | None = None
    recompiles: dict[str, int] | None = None
    compile_time: float | None = None
    kernels: tuple[CompiledKernel, ...] = ()
    layers: tuple[str, ...] = ()
    how: How = "measured"
