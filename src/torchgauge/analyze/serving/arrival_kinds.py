"""Kinds of arrivals and scenarios as options write them, for every command that has them."""

from __future__ import annotations

from typing import Literal

from torchgauge.errors import InputError
from torchgauge.similar import did_you_mean, similar

SCENARIOS: tuple[Literal["server", "single-stream", "multi-stream", "offline"], ...] = (
    *("server", "single-stream", "multi-stream", "offline"),
)
KINDS = ("poisson", "constant", "gamma:2")
# Coefficients of variation of the times between requests.
LEAST_VARIATION, MOST_VARIATION = 0.01, 100.0


def arrival_kind(text: str) -> tuple[Literal["poisson", "constant", "gamma"], float | None] | None:
    """Return a kind with its variation; None of any other text, which may name a file of times."""
    if text in ("poisson", "constant"):
        return ("poisson" if text == "poisson" else "constant"), None
    kind, _, number = text.partition(":")
    try:
        variation = float(number)
    except ValueError:
        return None
    fits = kind == "gamma" and LEAST_VARIATION <= variation <= MOST_VARIATION
    return ("gamma", variation) if fits else None


def unknown_arrivals(text: str) -> InputError:
    """Return the error of a text that names neither a kind nor a file."""
    kinds = f"poisson, constant, gamma:CV with a CV from {LEAST_VARIATION:g} to {MOST_VARIATION:g}"
    near = [] if text.startswith("gamma") else similar(text, KINDS, limit=1, cutoff=0.5)
    return InputError(
        f"There are no arrivals '{text}'.",
        id="arrivals-unknown",
        remedy=did_you_mean(near, f"Choose from {kinds}, or a file of times."),
    )
