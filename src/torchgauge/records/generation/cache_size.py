"""How much memory a cache of keys, values or states takes."""

from __future__ import annotations

import msgspec

from torchgauge.records.record import Record


class CacheSize(Record, frozen=True, kw_only=True):
    """The bytes of a cache at the end of a call; every storage counts once.

    Attributes:
        kind: Its class.
        held: Bytes of all its tensors' memory.
        used: Bytes of the positions that hold tokens, and of states without positions; None where
            its layout is not known.
        formula: Bytes by the model's sizes: 2 × layers × heads of keys × size of a head × bytes of
            an element × positions × sequences, or what its architecture has in place of that; None
            where none is known to hold.
        reason: Why held, used and the formula differ; empty where they do not.
        positions: Positions of a sequence that it has seen.
        sequences: Rows of its tensors.
        elements: Bytes by dtype, as held.
        window: Positions that every layer attends to at most; None where a layer attends to all.
    """

    kind: str
    held: int
    used: int | None = None
    formula: int | None = None
    reason: str = ""
    positions: int | None = None
    sequences: int | None = None
    elements: dict[str, int] = msgspec.field(default_factory=dict)
    window: int | None = None
