"""What torch.compile made of a model: graphs, breaks, recompilations, kernels."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Record


class CompiledKernel(Record, frozen=True, kw_only=True):
    """A kernel that the compiler wrote or chose.

    Attributes:
        operators: The operators that it was fused from.
        layers: The layers it runs for; empty if they are not known: CPU kernels name no source, so
            only an operator that occurs once in a graph identifies its layer.
    """

    name: str
    operators: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


class Compilation(Record, frozen=True, kw_only=True):
    """What was compiled while the model was measured; None where it had been compiled before.

    Attributes:
        graphs: How many graphs were compiled.
        graph_breaks: Their number by reason.
        recompiles: Their number by reason.
        compile_time: Seconds.
        layers: Layers inside compiled graphs, where neither times nor ranges can separate them.
    """

    graphs: int | None = None
    graph_breaks: dict[str, int] | None = None
    recompiles: dict[str, int] | None = None
    compile_time: float | None = None
    kernels: tuple[CompiledKernel, ...] = ()
    layers: tuple[str, ...] = ()
    how: How = "measured"


class CompilationCost(Record, frozen=True, kw_only=True):
    """What compiling for one reason cost a loop, at one line.

    Attributes:
        cause: "first": code was compiled for the first time; "recompilation": what had been
            compiled did not serve; "graph break": the code behind a break is compiled by itself,
            and that before it a second time.
        reason: Why, as Dynamo says it; "" of a first compilation.
        place: The file and line of the function, or of the break.
        count: How often.
        time: Seconds in the compiler, its backend with it.
    """

    cause: Literal["first", "recompilation", "graph break"]
    reason: str
    place: str
    count: int
    time: float
    how: How = "measured"
