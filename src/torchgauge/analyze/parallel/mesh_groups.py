"""The groups of ranks along the dimensions of a mesh, whose ranks are numbered row by row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

MOST_NAMED = 6  # dimensions whose combinations get names


def coordinate(dims: Sequence[tuple[str, int]], rank: int) -> tuple[int, ...]:
    """Return where a rank is along each dimension."""
    places = []
    for _, size in reversed(dims):
        rank, place = divmod(rank, size)
        places.append(place)
    return tuple(reversed(places))


def rank_at(dims: Sequence[tuple[str, int]], places: Sequence[int]) -> int:
    """Return the rank at a coordinate."""
    rank = 0
    for (_, size), place in zip(dims, places, strict=True):
        rank = rank * size + place
    return rank


def groups_of(dims: Sequence[tuple[str, int]], rank: int) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group that a rank is in, by dimensions: "fsdp", "fsdp×tp".

    Of groups with the same ranks the first has the name, that of the fewest dimensions.
    """
    own = coordinate(dims, rank)
    groups: dict[str, tuple[int, ...]] = {}
    for count in range(1, min(len(dims), MOST_NAMED) + 1):
        for chosen in itertools.combinations(range(len(dims)), count):
            ranges = (
                range(size) if dim in chosen else (own[dim],) for dim, (_, size) in enumerate(dims)
            )
            ranks = tuple(rank_at(dims, places) for places in itertools.product(*ranges))
            if ranks not in groups.values():
                groups["×".join(dims[dim][0] for dim in chosen)] = ranks
    return groups
