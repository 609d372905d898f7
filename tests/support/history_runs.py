"""Runs made by hand: of any moment, commit, latency and layers."""

import datetime
import types

import msgspec
from sqlalchemy import text
from tests.support import records

from torchgauge.history import tables
from torchgauge.history.content import entry
from torchgauge.records.latency.latency import Yardstick
from torchgauge.records.record import Interval
from torchgauge.records.run import Facts
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
replace = msgspec.structs.replace


def profile(
    day=0,
    latency=0.010,
    layers=None,
    target="net.py:make",
    memory=16_000_000_000,
    torch="2.13.0",
    work=None,
    scope=None,
):
    """Return a record of `day`; `layers` are host times by path, in ns.

    `work` is the yardstick's seconds by kind, `scope` that of the median's interval.
    """
    known = records.environment()
    environment = replace(
        known,
        created=(DAY + datetime.timedelta(days=day)).isoformat(),
        machine=replace(known.machine, memory=memory),
        software=replace(known.software, torch=torch),
    )
    interval = Interval(low=0.99 * latency, high=1.01 * latency, scope=scope)
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=1000)]
    rows += [
        TreeRow(name=path, kind="layer", parent=0, calls=1, path=path, host=host)
        for path, host in (layers or {}).items()
    ]
    return records.profile(
        environment=environment,
        target=replace(records.profile().target, spec=target),
        latency=replace(
            records.latency(),
            median=latency,
            interval=interval,
            yardstick=None if work is None else Yardstick(times=work),
        ),
        tree=Tree(rows=tuple(rows)),
    )


def run(day=0, *, commit=None, branch="main", labels=None, **figures):
    """Return a run of `day` at a commit that is named after it."""
    said = Facts(commit=commit or f"c{day}", branch=branch, labels=labels or {})
    return entry(profile(day, **figures), said)


def second_version(monkeypatch):
    """Let the program read a version 2 of the store, with one more table."""
    step = types.SimpleNamespace(
        up=lambda connection: connection.execute(text("CREATE TABLE notes (run INTEGER)")),
        down=lambda connection: connection.execute(text("DROP TABLE notes")),
    )
    monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, step))
    monkeypatch.setattr(tables, "LATEST", len(tables.STEPS))
