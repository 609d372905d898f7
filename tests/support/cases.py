"""Many cases of one path: a few in `make test`, all of them in `make test-thorough`."""

from collections.abc import Iterable
from typing import Any

import pytest

FEW = 5


def few_quick(cases: Iterable[Any], count: int = FEW) -> list[Any]:
    """Return all cases: `count` of them, spread evenly, as they are, the others as thorough."""
    cases = list(cases)
    quick = {index * len(cases) // count for index in range(count)}
    return [
        case if index in quick else pytest.param(case, marks=pytest.mark.thorough)
        for index, case in enumerate(cases)
    ]
