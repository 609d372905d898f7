"""For what a device waits: one rule for the breakdown, the findings and the critical path."""

import pytest
from tests.support.kineto_events import copy, kernel, launch, launched, op, read

from torchgauge.analyze.trace.rank_trace import rank_trace

US = 1e-6


def trace(*parts, **header):
    return rank_trace(read(*parts, **header), "made.json")[0]


def approx(microseconds):
    return pytest.approx(microseconds * US, abs=1e-12)


def idle(record):
    return record.times[0].breakdown.idle


def ids(record):
    return [finding.id for finding in record.findings]


def test_the_host_is_waited_for_until_its_launch_and_not_for_what_came_after():
    # One kernel ends at 10 and the next is launched at 11, and begins a second later.
    record = trace(launched("relu", 5, 5, at=1), launched("gemm", 1_000_011, 100, at=11))
    assert idle(record).host_wait == approx(1 + 10)  # 10 is the least that a launch is given
    assert idle(record).other == approx(1_000_001 - 11)
    path = record.critical_path
    assert (path.host, path.launch, path.pause) == (approx(10), approx(10), approx(1_000_001 - 11))
    assert "idle-device" in ids(record)
    assert "idle-host" not in ids(record)


def test_what_a_launch_usually_takes_is_measured_in_the_file():
    """Launches of 40 µs onto an idle device, and one of 400."""
    parts = [launched(f"k{i}", 1_000 * i + 40, 10, at=1_000 * i) for i in range(9)]
    record = trace(*parts, launched("late", 9_400, 10, at=9_000))
    assert idle(record).other == approx(400 - 2 * 40)
    quick = trace(*parts[:-1], launched("late", 8_400, 10, at=8_000), launched("k", 9, 1, at=1))
    assert idle(quick).other == approx(400 - 2 * 40)


def test_a_call_that_lasts_is_the_hosts_and_a_copy_that_waits_is_not():
    loads = trace(launched("first", 5, 5, at=1), [launch(1, 20, 500), kernel("loaded", 515, 10, 1)])
    assert (idle(loads).host_wait, idle(loads).other) == (approx(505), 0)
    waits = trace(
        launched("first", 5, 5, at=1),
        [launch(1, 20, 600, name="hipMemcpyWithStream"), copy("Memcpy HtoD", 515, 100, 1)],
    )
    assert (idle(waits).host_wait, idle(waits).other) == (approx(20), approx(485))


def test_the_first_work_of_a_stream_is_told_to_have_waited_for_earlier_work():
    record = trace(
        launched("fill", 10, 5, at=1), launched("void (anonymous namespace)::decode<float>(int)",
                                                50_000, 50_000, at=60, stream=8),
    )  # fmt: skip
    latest = record.times[0].longest_other
    assert (latest.first_of_stream, latest.delay) == (True, approx(49_940))
    assert latest.idle == idle(record).other
    (finding,) = [one for one in record.findings if one.id == "idle-device"]
    assert "decode<float>, which began 49.94 ms after its launch" in finding.evidence
    assert "earlier work, not in this file, probably ran" in finding.evidence
    assert finding.worth is None  # the program does not wait so without the recording


def test_work_that_ran_behind_another_stream_waited_for_nothing_from_before():
    record = trace(
        launched("gemm", 10, 5_000, at=1), launched("other", 6_000, 5_000, at=60, stream=8)
    )
    (finding,) = [one for one in record.findings if one.id == "idle-device"]
    assert record.times[0].longest_other.first_of_stream
    assert "earlier work" not in finding.evidence


def test_what_the_file_does_not_say_is_unknown():
    """A file without launches, one with some of them, one whose launches are a queue's."""
    without = trace(kernel("a", 0, 60, 0), kernel("b", 100, 60, 0))
    assert (idle(without).unknown, idle(without).total) == (approx(40), approx(40))
    assert "idle-unknown" in ids(without)
    assert "idle-device" not in ids(without)
    some = trace(launched("a", 10, 60, at=0), kernel("b", 100, 60, 0), launched("c", 190, 1, at=2))
    assert (idle(some).unknown, idle(some).other) == (approx(30), approx(30))


def test_a_file_without_launches_is_told_what_to_record():
    record = trace(kernel("a", 0, 60, 0), kernel("b", 100, 60, 0))
    (finding,) = [one for one in record.findings if one.id == "launched-before"]
    assert "launched before" not in finding.evidence
    assert "--hip-trace" in finding.remedy
    assert "warm-up" not in finding.remedy
    with_some = trace(launched("a", 10, 60, at=0), kernel("b", 100, 60, 0), op("aten::mm", 0, 5))
    (finding,) = [one for one in with_some.findings if one.id == "launched-before"]
    assert "warm-up" in finding.remedy


def test_the_parts_of_the_path_are_the_causes_of_the_breakdown():
    """On one stream whose launches wait for nothing, pause by pause and in their sums."""
    record = trace(
        launched("a", 8, 10, at=0),
        launched("b", 20, 10, at=2),  # 2 µs: the device's own
        launched("c", 60, 10, at=3),  # 30 µs although it was launched
        launched("d", 90, 10, at=65),  # due at 75
        launched("e", 104, 10, at=85),  # due at 95
    )
    path, causes = record.critical_path, idle(record)
    assert path.pause == pytest.approx(causes.kernel_wait + causes.other)
    assert (causes.kernel_wait, causes.other) == (approx(2 + 4), approx(30 + 15))
    assert causes.host_wait == approx(5)
    assert path.launch == approx(8 + 5)  # with the first one's, before the window
