"""A store's versions: each file goes one version up and, without losing a run, one down.

A migration holds tables as they were then. What is released is never edited: the next change is
the next file, and the next line of `STEPS`.
"""

from __future__ import annotations

from types import ModuleType

from torchgauge.history.migrations import v1_tables

STEPS: tuple[ModuleType, ...] = (v1_tables,)
LATEST = len(STEPS)
