"""A folder whose processes had other labels each: the oldest series stay, the rest is "other"."""

import pytest
from tests.support.histograms import histogram_of

from torchgauge.monitoring import caps
from torchgauge.monitoring.caps import capped, place
from torchgauge.monitoring.folder import merged_state
from torchgauge.records.monitoring.window import ProcessState, Window, merged


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(caps, "MOST_IN_FOLDER", 4)
    monkeypatch.setattr(caps, "MOST_NAMES", 2)


def windows(process, routes, *, series="request", monitor="api"):
    """Return what a process recorded that began at that time."""
    made = [
        Window(
            series=series,
            labels={"monitor": monitor, "route": route},
            begin=float(process),
            end=100.0,
            count=2,
            histogram=histogram_of([0.25, 0.5]),
        )
        for route in routes
    ]
    return tuple(made)


def counts(given):
    return {(w.series, w.labels.get("route"), w.labels["monitor"]): w.count for w in merged(given)}


def test_series_of_older_processes_stay_and_nothing_is_lost():
    given = [*windows(2, "def"), *windows(1, "abc"), *windows(3, "agh")]
    assert counts(capped(given)) == {
        **{("request", route, "api"): 2 for route in "bcd"},
        ("request", "a", "api"): 4,
        ("request", "other", "api"): 8,
    }
    # Further ones of that process change none of the others.
    more = [*given, *windows(3, "ij")]
    assert counts(capped(more)) == counts(capped(given)) | {("request", "other", "api"): 12}


def test_names_without_end_are_one_and_other_monitors_have_series_of_their_own():
    given = [w for number in range(9) for w in windows(number, "a", series=f"read {number}")]
    given += windows(20, "abc", monitor="batch")
    assert counts(capped(given)) == {
        **{(f"read {number}", "a", "api"): 2 for number in range(4)},
        **{(f"read {number}", "other", "api"): 2 for number in (4, 5)},
        ("other s", None, "api"): 6,
        **{("request", route, "batch"): 2 for route in "abc"},
    }


def test_readings_are_none_of_them():
    reading = Window(series="memory", unit="B", begin=9, end=9, last=5.0, labels={"kind": "r"})
    assert reading in list(capped([*windows(1, "abcdef"), reading]))


def test_the_file_of_ended_processes_is_capped_too():
    states = [
        ProcessState(
            monitor="api", host="h", process=n, begin=n, end=100.0, windows=windows(n, routes)
        )
        for n, routes in ((1, "abc"), (2, "defg"), (3, "hijk"))
    ]
    state = merged_state(states, ["x"])
    assert len(state.windows) == 5
    assert sum(window.count for window in state.windows) == 22
    assert {w.labels["route"] for w in state.windows} == {"a", "b", "c", "d", "other"}


@pytest.mark.parametrize(
    ("known", "name", "placed"),
    [
        (0, "request", ("request", {"route": "new"})),
        (4, "request", ("request", {"route": "other"})),
        (6, "request", ("other s", {})),
    ],
)
def test_where_a_further_series_belongs(known, name, placed):
    keys = {(f"read {number}", ()) for number in range(known)}
    assert place(name, "s", {"route": "new"}, keys, 4) == placed
    keys.add((name, (("route", "new"),)))
    assert place(name, "s", {"route": "new"}, keys, 4) == (name, {"route": "new"})
