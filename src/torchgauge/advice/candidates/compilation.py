"""torch.compile in its modes, and CUDA graphs by themselves."""

from __future__ import annotations

from collections.abc import Callable

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.target import Facts

# Seconds that compiling takes on a few cores: what starts it, and what each module adds. Tuning
# tries several kernels for each.
STARTING, PER_MODULE, AUTOTUNING = 10.0, 0.2, 3.0


def _compiling(facts: Facts) -> float:
    return STARTING + PER_MODULE * sum(facts.layers.values())


def _needs_compiler(facts: Facts) -> str | None:
    if facts.cuda or facts.compiler:
        return None
    return "torch.compile needs a C++ compiler on the CPU, and none is installed (g++, clang++)."


def _needs_cuda(facts: Facts) -> str | None:
    return (
        None
        if facts.cuda
        else "CUDA graphs exist on NVIDIA GPUs; without them it is the default mode."
    )


def _autotune(facts: Facts) -> str | None:
    if facts.cuda:
        return None
    return "On the CPU it tunes frozen weights only: set TORCHINDUCTOR_FREEZING=1 and try that."


def _graphs(facts: Facts) -> str | None:
    if not facts.cuda:
        return "CUDA graphs exist on NVIDIA GPUs only."
    if facts.target.inputs and not facts.plain_inputs:
        return "Its inputs are not plain tensors, which a graph could keep."
    return None


def _compile(
    mode: str,
    reason: Callable[[Facts], str | None],
    *,
    gain: float = 0.2,
    setup: Callable[[Facts], float] = _compiling,
) -> Candidate:
    argument = f', mode="{mode}"' if mode else ""
    return Candidate(
        id="-".join(filter(None, ("compile", mode))),
        title=", ".join(filter(None, ("torch.compile", mode))),
        code=fixed(f"model = torch.compile(model{argument})"),
        reason=reason,
        order="compile",
        group="compile",
        gain=gain,
        setup=setup,
    )


CANDIDATES = (
    _compile("", _needs_compiler),
    _compile("reduce-overhead", _needs_cuda),
    _compile(
        "max-autotune", _autotune, gain=0.25, setup=lambda facts: AUTOTUNING * _compiling(facts)
    ),
    Candidate(
        id="cuda-graphs",
        title="CUDA graphs",
        code=fixed("model = torch.cuda.make_graphed_callables(model, tuple(args))"),
        reason=_graphs,
        step="inference",
        order="compile",
        group="compile",
        gain=0.2,
    ),
)
