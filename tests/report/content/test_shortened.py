"""Names cut to a width: both ends, and still different."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.cells import cell_len

from torchgauge.report.console.bar import shortened_distinctly
from torchgauge.report.tables.operator_replay import labels, short

LONG = "aten::_convolution  8×64×56×56, {}, 64, 1×1×1×1, 2×2×2×2, 8×64×56×56"


def test_a_long_name_alone_keeps_both_ends():
    assert shortened_distinctly(["abcdefghij"], 7) == ["abc…hij"]


def test_names_that_differ_in_the_middle_show_where():
    cut = shortened_distinctly([LONG.format("64×64×3×3"), LONG.format("64×64×1×1")], 40)
    assert ["64×64×3×3" in cut[0], "64×64×1×1" in cut[1]] == [True, True]
    assert max(map(len, cut)) <= 40


def test_the_same_name_twice_stays_the_same():
    assert len(set(shortened_distinctly(["x" * 50] * 2, 20))) == 1


words = some.text("ab×, ", min_size=1, max_size=30)


@given(
    some.lists(some.one_of(words, some.text(string.printable + "漢é", max_size=40)), max_size=8),
    some.integers(8, 40),
)
def test_names_that_differ_still_do_and_fit(texts, width):
    cut = shortened_distinctly(texts, width)
    assert len(set(cut)) == len(set(texts))
    assert all(cell_len(text) <= width for text in cut)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ("[[4, 3, 64, 64], [16, 3, 3, 3], [16], [], []]", "4×3×64×64, 16×3×3×3, 16"),
        ("[[2, 3], [], [3]]", "2×3, –, 3"),
        ("[[[2, 3], [4, 3]], []]", "[2×3, 4×3]"),
        ("[[], []]", "–"),
        ("", "–"),
        ("{not a list", "{not a list"),
        ('{"a": 1}', '{"a": 1}'),
        ("[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000),
    ],
)
def test_shapes_are_written_as_elsewhere(shapes, expected):
    assert short(shapes) == expected


def test_operators_whose_short_shapes_are_alike_keep_torchs():
    assert labels(["to", "to", "mm"], ["[[]]", "[[], []]", "[[2]]"]) == [
        "to  [[]]", "to  [[], []]", "mm  2",
    ]  # fmt: skip
