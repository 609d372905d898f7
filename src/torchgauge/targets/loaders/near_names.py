"""The remedy for a model name that a library does not have: similar names."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge.similar import did_you_mean, similar


def near_names(name: str, names: Iterable[str], list_code: str) -> str:
    """Return a remedy: the most similar of `names`, and `list_code`, code that prints all."""
    question = did_you_mean(similar(name, names), "")
    return f'{question} To see all names: python -c "{list_code}"'.lstrip()
