"""The page of one rank of a job on many devices: what is alive over its step, and its tables."""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.records.parallel.parallel import Parallel, RankKind
from torchgauge.records.parallel.rank_memory import PARTS as MEMORY_PARTS
from torchgauge.report.content.count import model_name
from torchgauge.report.content.parallel import parallel, rank_blocks
from torchgauge.report.page import page_document
from torchgauge.report.page.page_document import Choice, Option, figure

HEADLINES = ("at the peak", "at rest", "reserved", "FLOPs")
METHOD = (
    "Counted on tensors without values, for one rank, of a step that follows the first; "
    "distance between moments is allocations and frees, not time."
)


def choice(record: Parallel) -> Choice:
    """Return the memory of each kind of rank, the largest first."""
    options = [Option(kind.name, {"memory": memory(kind)}) for kind in record.kinds]
    return Choice("rank", options, record.kinds.index(record.largest), "memory")


def memory(kind: RankKind) -> dict[str, Any]:
    """Return what is alive over a step by part, and at its peak."""
    used = kind.memory
    columns = list(zip(*(moment.parts for moment in used.timeline), strict=True))
    section = rank_blocks.memory(kind)
    return {
        "time": [moment.changes for moment in used.timeline],
        "changes": True,
        "live": [sum(moment.parts) for moment in used.timeline],
        "peak": used.peak,
        "average": None,
        "parts": {part: size for part, size in used.parts_at_peak.items() if size},
        "order": list(MEMORY_PARTS),
        "stacked": [
            [part, list(sizes)]
            for part, sizes in zip(MEMORY_PARTS, columns, strict=False)
            if any(sizes)
        ],
        "peak_at": {"layer": "", "node": None, "operator": "", "phase": used.peak_phase},
        "rows": [[row.label, row.value, row.note] for row in section.rows],
        "method": METHOD,
        "how": used.how,
    }


def overview(record: Parallel) -> dict[str, Any]:
    """Return the first screen: whether it fits into each device, its least time, the figures."""
    kind = record.largest
    reserved = units.size(kind.memory.reserved, 3)
    cards = [
        figure(
            model_name(fit.device),
            parallel.worst_verdict(record, fit.device),
            f"{reserved} reserved of {units.size(fit.memory, 3)}",
            fit.how,
            "memory",
        )
        for fit in kind.fits
    ]
    cards += [
        figure(
            model_name(bound.device),
            f"≥ {units.time(bound.seconds, 3)}",
            "a step at least",
            bound.how,
        )
        for bound in kind.bounds
    ]
    part = page_document.overview(record)
    figures = [card for card in part["figures"] if card["label"] in HEADLINES]
    return part | {"figures": [*cards, *figures]}


PARTS = {"overview": overview, "tables": page_document.tables}
