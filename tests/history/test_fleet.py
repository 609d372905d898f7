"""A large history in parts."""

import pytest
from sqlalchemy import event
from tests.support import history_runs as runs

from torchgauge.history import fleet
from torchgauge.history.store import Store


@pytest.fixture
def store(location):
    with Store.open(location) as store:
        for day in (3, 1, 2):
            store.add(runs.run(day, latency=0.01 * day, work={"matmul": day / 100}))
        store.add(runs.run(4, branch="other", layers={"a.b": 7}))
        store.add(runs.run(9, target="late.py:make"))
        yield store


def test_targets_by_their_newest_run(store):
    rows = store.read(fleet.targets)
    assert [(row.target, row.runs, row.newest[:10]) for row in rows] == [
        ("late.py:make", 1, "2026-01-10"),
        ("net.py:make", 4, "2026-01-05"),
    ]


def test_series_of_a_target_are_apart_by_branch(store):
    series = store.read(lambda connection: fleet.series_of_target(connection, "net.py:make"))
    assert [(one.facts["branch"], one.runs) for one in series] == [("other", 1), ("main", 3)]
    newest = store.read(lambda connection: fleet.newest_identity(connection, "net.py:make"))
    assert newest == series[0].identity
    assert store.read(lambda connection: fleet.newest_identity(connection, "none")) == ()


def test_the_newest_runs_are_oldest_first(store):
    identity = store.read(lambda connection: fleet.series_of_target(connection, "net.py:make"))[
        1
    ].identity
    newest = store.read(lambda connection: fleet.newest_runs(connection, identity, 2))
    assert [run.commit for run in newest.values()] == ["c2", "c3"]
    values = store.read(
        lambda connection: fleet.values(connection, identity, "latency_median", fleet.FIRST, 9)
    )
    assert [value for _, value in values] == pytest.approx([0.01, 0.02, 0.03])
    after = store.read(
        lambda connection: fleet.values(connection, identity, "latency_median", values[0][0], 1)
    )
    assert after == values[1:2]
    points, yardsticks = store.read(
        lambda connection: fleet.newest_points(connection, identity, ["latency_median"], 2)
    )
    assert [point.value for point in points[0].points] == pytest.approx([0.02, 0.03])
    seconds = [yardsticks[point.run]["matmul"] for point in points[0].points]
    assert seconds == [0.02, 0.03]
    names = store.read(lambda connection: fleet.metric_names(connection, list(newest)))
    assert "latency_median" in names
    assert store.read(lambda connection: fleet.newest_runs(connection, (), 2)) == {}


def test_figures_of_layers(store):
    identity = store.read(lambda connection: fleet.newest_identity(connection, "net.py:make"))
    points, _ = store.read(
        lambda connection: fleet.newest_points(connection, identity, ["host_time"], 9, "a.*")
    )
    assert [(one.layer, one.values) for one in points] == [("a.b", (pytest.approx(7e-9),))]


def test_the_state_changes_with_each_run_that_comes_or_goes(store):
    before = store.read(fleet.state)
    uuid, _ = store.add(runs.run(20))
    added = store.read(fleet.state)
    store.remove([uuid])
    removed = store.read(fleet.state)
    store.add(runs.run(21))  # in SQLite it takes the number of the one that was removed
    assert len({before, added, store.read(fleet.state)}) == 3
    assert removed == before
    full = store.read(fleet.state)
    store.remove([store.runs()[0].uuid])  # not the newest
    assert store.read(fleet.state) != full


def test_no_query_reads_the_runs_of_other_targets(store):
    """SQLite says how it finds the rows: by an index, and for the targets in the index alone."""
    statements = []
    event.listen(
        store._engine,
        "before_cursor_execute",
        lambda _c, _u, text, parameters, *_: statements.append((text, parameters)),
    )
    if store.file is None:
        pytest.skip("PostgreSQL reads a small table whole")
    identity = store.read(lambda connection: fleet.newest_identity(connection, "net.py:make"))
    store.read(fleet.targets)
    store.read(lambda connection: fleet.series_of_target(connection, "net.py:make"))
    store.read(lambda connection: fleet.newest_points(connection, identity, ["flops"], 9))
    store.read(lambda connection: fleet.values(connection, identity, "flops", fleet.FIRST, 9))

    def plan(connection, text, parameters):
        return [
            row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)
        ]

    queries = [one for one in statements if one[0].startswith("SELECT") and "FROM runs" in one[0]]
    assert len(queries) == 5
    for text, parameters in queries:
        steps = store.read(lambda connection, t=text, p=parameters: plan(connection, t, p))
        for step in steps:
            whole = step.startswith("SCAN")
            assert not whole or "COVERING INDEX runs_by_target" in step, (text, steps)
