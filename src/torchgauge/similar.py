"""The names that a misspelt one probably means, and the question that asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def similar(name: str, names: Iterable[str], *, limit: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return those of `names` most like `name` in any case, the most similar first.

    `cutoff` is the least ratio of `difflib.SequenceMatcher`: 1 is the same name, 0 is any.
    """
    import difflib  # only where a name is wrong

    by_lower = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=limit, cutoff=cutoff)
    return [by_lower[lower] for lower in near]


def did_you_mean(names: Sequence[str], otherwise: str) -> str:
    """Return the question of a remedy, `otherwise` where no name is similar."""
    return f"Did you mean {' or '.join(names)}?" if names else otherwise


def near_names(name: str, names: Iterable[str], list_code: str) -> str:
    """Return a remedy: the most similar of `names`, and `list_code`, code that prints all."""
    question = did_you_mean(similar(name, names), "")
    return f'{question} To see all names: python -c "{list_code}"'.lstrip()
