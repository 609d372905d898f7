"""A candidate: lines of code, and what must hold before they are worth a try."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from torchgauge.records.advice import Assumed, Goal, Language
from torchgauge.records.target import Facts


@dataclasses.dataclass(frozen=True)
class ByLayer:
    """How a candidate is applied to the layers under some module paths alone.

    Attributes:
        kinds: Names of the layers' classes in `torch.nn`.
        code: Returns the lines for a model and the paths, of layers or of modules around them.
    """

    kinds: tuple[str, ...]
    code: Callable[[Facts, Sequence[str]], str]


def classes(kinds: Sequence[str], facts: Facts) -> str:
    """Return Python of the set of those classes that a model has layers of."""
    return "{" + ", ".join(f"torch.nn.{kind}" for kind in kinds if facts.count(kind)) + "}"


def layer_condition(kinds: Sequence[str], facts: Facts, paths: Sequence[str]) -> str:
    """Return Python that tells whether a module `m` named `n` is such a layer under the paths.

    The dot at the end keeps "layer.1" from meaning "layer.10".
    """
    prefixes = tuple(f"{path}." for path in paths)
    return f'type(m) in {classes(kinds, facts)} and f"{{n}}.".startswith({prefixes!r})'


Step = Literal["inference", "training", "both"]
# When in a combination a candidate's lines run: what rewrites a model comes before what wraps it.
Order = Literal["rewrite", "cast", "layout", "quantise", "wrap", "compile", "process"]
ORDERS: tuple[Order, ...] = (
    "rewrite", "cast", "layout", "quantise", "wrap", "compile", "process"
)  # fmt: skip


def always(_facts: Facts) -> str | None:
    """Hold for every model."""
    return None


def no_assumptions(_facts: Facts) -> tuple[Assumed, ...]:
    """Estimate nothing."""
    return ()


def no_setup(_facts: Facts) -> float:
    """Take no time before the first call."""
    return 0.0


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A change that may help. Its `code` is run as it stands, and shown as it stands.

    `reason` says why it is not worth a try on a model, None where it is. `code` has at most three
    lines: Python on `model`, `args`, `kwargs` once the model is made, or on the `optimizer` where
    `on` says so; shell lines set variables of the process. `original` is run on the other side,
    where the usual one has the change already. `tolerance` is the relative error allowed by
    itself. `runtime` is the only one that it is for.
    Two of the same `group` exclude each other. `times` as many samples are in a call.

    `gain` is the share of a call's time that it may be expected to save where it fits, and `setup`
    the seconds that its first call may be expected to take once. Both only decide which of the
    candidates is tried first; what is said of one is measured.

    Where the change to all layers breaks the output, `by_layer` makes it to some; a candidate with
    `choosing` is one whose layers are not chosen yet.
    """

    id: str
    title: str
    code: Callable[[Facts], str]
    reason: Callable[[Facts], str | None] = always
    step: Step = "both"
    goal: Goal = "time"
    order: Order = "wrap"
    group: str = ""
    on: Literal["model", "optimizer"] = "model"
    language: Language = "python"
    original: str = ""
    tolerance: float = 1e-3
    times: int = 1
    needs_module: bool = True
    runtime: str = ""
    gain: float = 0.03
    setup: Callable[[Facts], float] = no_setup
    assumed: Callable[[Facts], tuple[Assumed, ...]] = no_assumptions
    by_layer: ByLayer | None = None
    choosing: ByLayer | None = None

    def untried(self, facts: Facts) -> str | None:
        """Return why it is not tried, None where it is."""
        if self.step != "both" and facts.training != (self.step == "training"):
            step_name = "a training step" if self.step == "training" else "inference"
            return f"It applies to {step_name}, but {_other(facts)} is measured."
        if self.runtime and self.runtime != facts.runtime:
            return f"It is for ONNX files in {self.runtime}."
        if self.needs_module and facts.runtime:
            return "It changes a module of torch, and the target runs in another runtime."
        if self.needs_module and not facts.module:
            return "The target is a plain callable: nothing in it can be changed."
        if facts.compiled and self.needs_module:
            return "The target is a compiled program and cannot be changed."
        return self.reason(facts)

    def variables(self, facts: Facts) -> dict[str, str]:
        """Return the variables that shell lines export."""
        if self.language != "shell":
            return {}
        lines = [line.removeprefix("export ") for line in self.code(facts).splitlines()]
        return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _other(facts: Facts) -> str:
    return "a training step" if facts.training else "inference"


def fixed(code: str) -> Callable[[Facts], str]:
    """Return what gives the same lines for every model."""
    return lambda _facts: code


def converted(facts: Facts, first: str, to: str) -> str:
    """Return lines that convert a model, the `first`, and its inputs; `to` has {0} for one."""
    lines = [first]
    if facts.float_args:
        lines.append(f"args = [a.{to.format('a')} for a in args]")
    if facts.float_kwargs:
        lines.append(f"kwargs = {{k: v.{to.format('v')} for k, v in kwargs.items()}}")
    return "\n".join(lines)
