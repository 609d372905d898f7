"""The ranges that begins and ends of a snapshot stand for, by hand."""

from torchgauge.analyze.snapshot.growth import MarkedRange, ranges
from torchgauge.records.snapshot import Mark


def mark(name, stage, at, device=0):
    return Mark(name=name, stage=stage, device=device, time=at)


def test_a_begin_and_the_end_of_its_name_are_a_range():
    marks = [
        mark("step", "START", 1.0),
        mark("forward", "START", 2.0),
        mark("forward", "END", 3.0),
        mark("step", "END", 4.0),
        mark("step", "START", 5.0),
        mark("step", "END", 7.0),
    ]
    expected = [
        MarkedRange("step", 1.0, 4.0),
        MarkedRange("forward", 2.0, 3.0),
        MarkedRange("step", 5.0, 7.0),
    ]
    assert ranges(marks, 0) == expected
    assert ranges(marks[::-1], 0) == expected  # threads write in another order than it happened


def test_ranges_of_one_name_that_overlap_are_one_however_their_moments_are_paired():
    stages = ("START", "START", "END", "START", "END", "END", "START", "END")
    marks = [mark("layer", stage, float(at)) for at, stage in enumerate(stages)]
    assert ranges(marks, 0) == [
        MarkedRange("layer", 0.0, 5.0, calls=3),
        MarkedRange("layer", 6.0, 7.0),
    ]


def test_what_was_not_kept_is_unknown():
    marks = [mark("lost", "END", 1.0), mark("open", "START", 2.0), mark("never", "START", None)]
    assert ranges(marks, 0) == [
        MarkedRange("lost", None, 1.0),
        MarkedRange("open", 2.0, None),
        MarkedRange("never", None, None),
    ]


def test_a_moment_of_another_kind_leaves_the_range_of_its_name_open():
    marks = [mark("save", "START", 1.0), mark("save", "note", 2.0), mark("save", "END", 3.0)]
    assert ranges(marks, 0) == [MarkedRange("save", 1.0, 3.0), MarkedRange("save", 2.0, 2.0)]


def test_each_device_has_its_own_and_those_of_none():
    marks = [mark("a", "START", 1.0, 0), mark("a", "END", 2.0, 1), mark("b", "", None, None)]
    assert ranges(marks, 0) == [MarkedRange("a", 1.0, None), MarkedRange("b", None, None)]
    assert ranges(marks, 1) == [MarkedRange("a", None, 2.0), MarkedRange("b", None, None)]
