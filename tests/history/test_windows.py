"""Windows of monitors in a history: kept once, found by series and time, and removed."""

import math

import pytest
from sqlalchemy import text
from tests.support.histograms import histogram_of

from torchgauge.errors import RecordError
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows, count_windows, read_windows, remove_windows
from torchgauge.records.monitoring.window import Window, merged


@pytest.fixture
def store(location):
    with Store.open(location) as opened:
        yield opened


def window(end, values=(0.5,), series="latency", **labels):
    return Window(
        series=series,
        labels={"monitor": "net", **labels},
        begin=end - 60.0,
        end=end,
        count=len(values) + 1,
        histogram=histogram_of(values),
        errors={"ValueError": 1},
    )


def test_windows_are_kept_once_and_found_again(store):
    first = [window(60.0), window(120.0, (0.25, 4.0)), window(60.0, layer="fc")]
    assert add_windows(store, first, "host:1") == 3
    assert add_windows(store, first[:1], "host:1") == 1  # again, after a broken connection
    add_windows(store, [window(60.0, (2.0,))], "host:2")
    assert add_windows(store, [], "host:3") == 0
    read = read_windows(store, monitor="net", series="latency")
    assert [part.end for part in read] == [60.0, 60.0, 60.0, 120.0]
    assert {part.labels["process"] for part in read} == {"host:1", "host:2"}
    assert [part.without("process") for part in read if part.end == 120.0] == first[1:2]
    layer, total = merged(part.without("process") for part in read)
    assert (layer.labels["layer"], layer.count) == ("fc", 2)
    assert (total.count, total.errors) == (7, {"ValueError": 3})
    assert total.histogram == histogram_of([0.5, 0.25, 4.0, 2.0])
    assert [part.end for part in read_windows(store, since=60.0)] == [120.0]
    assert len(read_windows(store, until=60.0)) == 3
    assert read_windows(store, monitor="other") == read_windows(store, series="step") == []


def test_old_windows_are_counted_and_removed(store):
    assert count_windows(store, math.inf) == 0
    add_windows(store, [window(60.0), window(120.0), window(120.0, series="step")], "host:1")
    assert (count_windows(store, 100.0), count_windows(store, math.inf)) == (1, 3)
    assert remove_windows(store, 100.0) == 1
    assert [part.series for part in read_windows(store)] == ["latency", "step"]


def test_windows_that_were_read_before_are_left_out(store):
    read_before = {}
    add_windows(store, [window(60.0), window(120.0)], "host:1")
    assert len(read_windows(store, read_before=read_before)) == 2
    add_windows(store, [window(60.0)], "host:2")
    (late,) = read_windows(store, read_before=read_before)
    assert late.labels["process"] == "host:2"
    assert sorted(read_before.values()) == [60.0, 60.0, 120.0]


def test_a_damaged_window_is_reported(store):
    add_windows(store, [window(60.0)], "host:1")
    store.write(lambda connection: connection.execute(text("UPDATE windows SET data = 'x'")))
    with pytest.raises(RecordError) as error:
        read_windows(store)
    assert error.value.id == "store-damaged"
