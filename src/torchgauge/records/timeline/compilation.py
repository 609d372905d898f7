"""What torch.compile made of a model: graphs, breaks, recompilations, kernels."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Interval, Record

ComparedPart = Literal[
    "layers", "kernels of unknown layers", "compiled code outside kernels", "rest of the step"
]


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


class ComparedLayers(Record, frozen=True, kw_only=True):
    """Layers with the seconds of a step that they take eager and compiled.

    Layers that a fused kernel spans are one entry: its time is not divided between them.

    Attributes:
        part: "layers", or what belongs to none: "kernels of unknown layers", "compiled code outside
            kernels" (guards, memory, Python) and "rest of the step".
        layers: Their module paths, "" for the model's own code.
        eager: Of the layers themselves, without layers that they call; None where nothing is.
        compiled: Of their kernels, and of what is not compiled; 0 where no kernel is theirs, None
            where kernels of compiled code are not known.
        kernels: The kernels' names.
    """

    part: ComparedPart = "layers"
    layers: tuple[str, ...] = ()
    eager: float | None = None
    compiled: float | None = None
    kernels: tuple[str, ...] = ()


class EagerComparison(Record, frozen=True, kw_only=True):
    """A step's forward pass run eagerly beside the compiled one, on the same inputs, in turns.

    Attributes:
        eager: Seconds of an eager forward pass with nothing attached, the median; `rows` add up to
            it.
        compiled: Likewise of the compiled one.
        speed_up: Eager ÷ compiled, the geometric mean of the rounds.
        interval: Its 95 % interval; None of fewer than two rounds.
        rounds: How often both were measured.
        rows: Most eager time first, then what belongs to no layer.
        phases: Seconds of the other phases of a training step, eager and compiled.
    """

    eager: float
    compiled: float
    speed_up: float
    interval: Interval | None
    rounds: int
    rows: tuple[ComparedLayers, ...]
    phases: dict[str, tuple[float, float]]
    how: How = "measured"


class Compilation(Record, frozen=True, kw_only=True):
    """What was compiled while the model was measured; None where it had been compiled before.

    Attributes:
        graphs: How many graphs were compiled.
        graph_breaks: Their number by reason.
        recompiles: Their number by reason.
        compile_time: Seconds.
        layers: Layers inside compiled graphs, where neither times nor ranges can separate them.
        beside_eager: The model run eagerly and compiled; None where that was not measured.
    """

    graphs: int | None = None
    graph_breaks: dict[str, int] | None = None
    recompiles: dict[str, int] | None = None
    compile_time: float | None = None
    kernels: tuple[CompiledKernel, ...] = ()
    layers: tuple[str, ...] = ()
    beside_eager: EagerComparison | None = None
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
