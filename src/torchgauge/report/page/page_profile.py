"""The page of a profile: its first screen, tree, tables, charts and how it was measured."""

from __future__ import annotations

from typing import Any

from torchgauge.records.profile import Profile
from torchgauge.report.page import (
    page_method,
    page_overview,
    page_roofline,
    page_series,
    page_tables,
    page_tree,
)


def tables(profile: Profile) -> list[dict[str, Any]] | None:
    """Return the tables of a profile's tree, and of the tensors alive at its memory peak."""
    listed_tables = [] if profile.tree is None else page_tables.tree_tables(profile.tree)
    if profile.memory is not None and profile.memory.tensors:
        listed_tables.append(page_tables.alive_tensors(profile.memory))
    return listed_tables or None


PARTS = {
    "overview": page_overview.overview,
    "tree": page_tree.profile_tree,
    "tables": tables,
    "roofline": page_roofline.roofline,
    "latency": page_series.latency,
    "memory": page_series.memory,
    "system": page_series.system,
    "method": page_method.profile_method,
    "environment": page_method.environment,
}
