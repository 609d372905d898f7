"""Windows: rates, shares and merging over processes."""

import msgspec
import pytest
from tests.support.histograms import histogram_of

from torchgauge.records.monitoring.window import Window, merged


def window(process="1", begin=0.0, values=(0.5, 1.0), **fields):
    labels = {"monitor": "resnet", "process": process}
    histogram = histogram_of(values)
    defaults = {"count": len(values), "begin": begin, "end": begin + 2.0, "labels": labels}
    return Window(series="latency", histogram=histogram, **(defaults | fields))


def test_figures_by_hand():
    failing = window(count=10, errors={"ValueError": 1, "http 500": 1})
    assert (failing.rate, failing.failed, failing.error_share) == (5.0, 2, 0.2)
    # 8 succeeded, 2 of them were timed, 0.75 s on average.
    assert failing.total == pytest.approx(6.0)
    assert window(values=()).total is None
    assert window(end=0.0).rate is None


def test_processes_merge_into_one_window_without_their_label():
    parts = [
        window("1", errors={"ValueError": 1}, count=3),
        window("2", begin=1.0, values=(4.0,), errors={"ValueError": 2}, count=3),
    ]
    assert len(merged(parts)) == 2
    (total,) = merged(part.without("process") for part in parts)
    assert (total.begin, total.end, total.count) == (0.0, 3.0, 6)
    assert total.errors == {"ValueError": 3}
    assert total.histogram == histogram_of([0.5, 1.0, 4.0])
    assert total.labels == {"monitor": "resnet"}


def test_the_difference_of_two_states():
    earlier = window(errors={"ValueError": 1}, count=3)
    state = msgspec.structs.replace(
        earlier,
        end=5.0,
        count=5,
        histogram=earlier.histogram + histogram_of([8.0]),
        errors={"ValueError": 1, "KeyError": 1},
    )
    added = state.since(earlier)
    assert (added.begin, added.end, added.count) == (2.0, 5.0, 2)
    assert added.errors == {"KeyError": 1}
    assert (added.histogram.sum, added.histogram.max) == (8.0, 8.0)


def test_windows_travel_as_bytes_and_hostile_ones_are_refused():
    whole = window(errors={"ValueError": 1})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=Window) == whole
    data = msgspec.to_builtins(whole)
    data["histogram"]["counts"] = [-1]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, Window)
