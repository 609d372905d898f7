"""A finding about a machine or a process that distorts timings: evidence and remedy."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

Severity = Literal["info", "warning", "serious"]


class Finding(Record, frozen=True, kw_only=True):
    """One finding; `id` is stable.

    "serious": figures are most likely wrong. "warning": they scatter more, or are a few percent
    off. "info": nothing is wrong, and who reads the figures should know it.
    """

    id: str
    severity: Severity
    title: str
    evidence: str
    remedy: str
