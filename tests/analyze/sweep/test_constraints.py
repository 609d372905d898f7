"""Constraints as they are written, and the cells that keep them."""

import msgspec
import pytest
from tests.support import records
from tests.support.sweeps import cell, ended

from torchgauge.analyze.sweep.constraints import best, parse
from torchgauge.errors import InputError

HERE = records.environment()


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("p99<20ms", [("p99", 0.02, False)]),
        ("p99 <= 20 ms and memory<2GiB", [("p99", 0.02, False), ("memory", 2**31, False)]),
        ("throughput>1ksamples/s, p50<1s", [("throughput", 1000.0, True), ("p50", 1.0, False)]),
        ("", []),
        ("  ", []),
    ],
)  # fmt: skip
def test_what_is_written_is_read(text, limits):
    assert [(one.metric, one.value, one.is_minimum) for one in parse(text)] == limits


@pytest.mark.parametrize(
    ("text", "id", "remedy"),
    [
        ("p99", "constraint-invalid", "p99<20ms"),
        ("p99>20ms", "constraint-invalid", "p99<20ms"),
        ("throughput<5samples/s", "constraint-invalid", "throughput>5samples/s"),
        ("p99<20", "threshold-invalid", "20ms"),
        ("memory<2gb", "threshold-invalid", "2GB"),
        ("p98<20ms", "metric-unknown", "p9"),
        ("flops<2G", "metric-unknown", "one of them"),
        ("p99<20ms and", "constraint-invalid", "p99<20ms"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, id, remedy):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.id == id
    assert remedy in caught.value.remedy


CELLS = [
    cell(1, 0.010, 1000),  # 100 samples/s
    cell(2, 0.015, 2000),  # 133
    cell(4, 0.0295, 4000),  # 136
    ended("crashed", batch=8),
]


def test_the_best_keeps_the_constraints():
    assert best(CELLS, "latency", (), HERE).cell == 0
    assert best(CELLS, "throughput", (), HERE).cell == 2
    assert best(CELLS, "throughput", parse("latency<20ms"), HERE).cell == 1
    assert best(CELLS, "throughput", parse("latency<20ms and memory<1.5kB"), HERE).cell == 0
    none = best(CELLS, "memory", parse("latency<1ms"), HERE)
    assert (none.cell, none.unknown) == (None, ())


def test_a_tie_is_said_and_only_among_those_that_keep_them():
    close = [cell(1, 0.0100), cell(1, 0.0101), cell(1, 0.0200), cell(1, 0.0100, 5000)]
    assert best(close, "latency", (), HERE).ties == (1, 3)
    assert best(close, "latency", parse("memory<2kB"), HERE).ties == (1,)


def test_a_limit_in_the_interval_is_borderline():
    assert best([cell(1, 0.0100)], "latency", parse("latency<10.05ms"), HERE).borderline == (
        "latency",
    )
    assert best([cell(1, 0.0100)], "latency", parse("latency<11ms"), HERE).borderline == ()


def test_what_is_unknown_keeps_no_limit():
    unknown = [cell(1, 0.001, None), cell(1, 0.010, 1000)]
    found = best(unknown, "latency", parse("memory<1MB"), HERE)
    assert (found.cell, found.unknown) == (1, (0,))


def test_without_a_batch_calls_are_the_throughput():
    assert best([cell(None, 0.02), cell(None, 0.01)], "throughput", (), HERE).cell == 1


def test_a_percentile_of_too_few_samples_is_unknown():
    cells = [cell(1, 0.001), cell(1, 0.010, p99=0.011)]  # the first one's p99 would be 1 ms
    assert best(cells, "p99", (), HERE).cell == 1
    kept = best(cells, "latency", parse("p99<20ms"), HERE)
    assert (kept.cell, kept.unknown) == (1, (0,))


def test_without_an_interval_the_range_of_samples_decides_ties():
    spread = cell(1, 0.0150, error=None)
    wide = msgspec.structs.replace(spread.latency, min=0.0095, max=0.0300)
    cells = [cell(1, 0.0100), msgspec.structs.replace(spread, latency=wide)]
    assert best(cells, "latency", (), HERE).ties == (1,)
    assert best([cells[0], spread], "latency", (), HERE).ties == ()
