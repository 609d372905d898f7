"""One run in the history: what was measured when, where, and of which commit."""

from __future__ import annotations

import msgspec

from torchgauge.records.profile import Profile
from torchgauge.records.record import Record

SCHEMA = "torchgauge.run/1"


class Facts(Record, frozen=True, kw_only=True):
    """Facts about a run that its record does not have; empty or None if they were not given.

    `dirty` is True if files differed from the commit.
    """

    commit: str = ""
    branch: str = ""
    dirty: bool | None = None
    message: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Run(Facts, frozen=True, kw_only=True):
    """A stored run: `created` when it was measured, `recorded` when it was saved (ISO 8601, UTC).

    `uuid` was made when it was saved, `digest` is of the record's content. `workload` names all
    that must be equal for times to belong in one series: model, inputs, device, precision, threads.
    """

    uuid: str
    digest: str
    created: str
    recorded: str
    machine: str
    cpu: str
    gpu: str
    torch: str
    target: str
    model: str
    device: str
    precision: str
    workload: str
    schema: str


class Entry(Record, frozen=True, kw_only=True):
    """A run with its whole record, as history exports and reads it: one line of JSON."""

    schema: str = SCHEMA
    run: Run
    profile: Profile
