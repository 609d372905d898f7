"""Options of `measure_generation`: the shapes, and how well they are measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torchgauge.device.energy import check_available
from torchgauge.errors import InputError, option_invalid
from torchgauge.measure.effort import EffortName, effort_named

PROMPT, NEW_TOKENS = 128, 64
NO_TOKENS = (
    "The prefill already chooses a token, and generate() of transformers refuses "
    "max_new_tokens=0. With 1 a call is the prefill alone."
)
# Timed calls of a cell, after one that is warm-up.
CALLS: dict[EffortName, int] = {"quick": 3, "usual": 5, "precise": 15}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """The grid and the effort; validated, torch-free.

    Attributes:
        prompts: Tokens of a prompt; empty: those of the inputs, or 128.
        batches: Prompts at once; empty: those of the inputs, or 1.
        new_tokens: Tokens that each call makes.
        caches: "dynamic", "static" or "none".
        beams: Sequences per prompt.
        predict: Shapes (batch, prompt) to estimate from the fits.
        effort: How many calls of a cell are timed.
        budget: Seconds for all calls; None: as long as these take.
        trees: Whether a prefill and a decode step are recorded by layer and operator.
        memory: Whether the peak of the last step is measured.
        roofs: Whether lower bounds are made from the device's roofs.
        energy: Whether the joules of calls are measured.
    """

    prompts: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    new_tokens: int = NEW_TOKENS
    caches: tuple[str, ...] = ("dynamic",)
    beams: int = 1
    predict: tuple[tuple[int, int], ...] = ()
    effort: EffortName = "usual"
    budget: float | None = None
    trees: bool = True
    memory: bool = True
    roofs: bool = True
    energy: bool = False

    def __post_init__(self) -> None:
        if self.energy:
            check_available()
        counts = {"prompt": self.prompts, "batch": self.batches, "beams": (self.beams,)}
        for name, values in counts.items():
            for value in values:
                _check_count(name, value, smallest=1)
        for shape in self.predict:
            if len(shape) != 2:
                raise option_invalid(
                    f"predict takes shapes of a batch and a prompt, not {shape!r}.",
                    "For example predict=[(8, 1024)].",
                )
            for value in shape:
                _check_count("predict", value, smallest=1)
        _check_count("new_tokens", self.new_tokens, smallest=1, cause=NO_TOKENS)
        effort_named(self.effort)
        for cache in self.caches or ("",):
            if cache not in ("dynamic", "static", "none"):
                raise InputError(
                    f"There is no cache '{cache}'.",
                    id="cache-unknown",
                    cause="Caches are dynamic, static or none.",
                    remedy="Give one of them, or several.",
                )

    @property
    def calls(self) -> int:
        """Timed calls of each cell."""
        return CALLS[self.effort]


def several(value: int | str | Sequence[Any] | None) -> tuple[Any, ...]:
    """Return one value, several or none as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int | str) else tuple(value)


def _check_count(name: str, value: Any, smallest: int, cause: str = "") -> None:
    if type(value) is not int or value < smallest:
        raise option_invalid(
            f"{name} must be a whole number of at least {smallest}, not {value!r}.",
            f"For example {name}={max(smallest, 8)}.",
            cause=cause,
        )
