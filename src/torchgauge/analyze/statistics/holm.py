"""Holm's correction for several hypotheses tested at once."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p: Sequence[float], alpha: float) -> list[bool]:
    """Return which of several hypotheses are rejected at a family-wise error of `alpha`.

    The smallest p is held against α ÷ m, the next against α ÷ (m − 1), until one holds.

    Source: Holm (1979).
    """
    fallen = [False] * len(p)
    for rank, number in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        if p[number] > alpha / (len(p) - rank):
            break
        fallen[number] = True
    return fallen
