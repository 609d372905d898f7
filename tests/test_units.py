import pytest

from torchgauge import units


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.01234, "12.34 ms"),
        (1.0, "1.000 s"),
        (0.99999, "1.000 s"),
        (0.9994, "999.4 ms"),
        (3.2e-8, "32.00 ns"),
        (4.5e-10, "0.4500 ns"),
        (125.0, "125.0 s"),
        (12345.6, "12,350 s"),
        (0.0, "0 s"),
        (None, "unknown"),
    ],
)
def test_time(seconds, shown):
    assert units.time(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.99999, "1.000 kB"),  # as arithmetic may leave 1000
        (1000, "1.000 kB"),
        (44_700_000, "44.70 MB"),
        (999_999_999, "1.000 GB"),
        (None, "unknown"),
        (-2048, "−2.048 kB"),
    ],
)
def test_size_is_decimal(count, shown):
    assert units.size(count) == shown


def test_counts_stay_exact_until_they_are_long():
    assert units.count(9_999) == "9,999"
    assert units.count(1.5) == "1.500"  # as a limit may be; not 2
    assert units.count(2.0) == "2"
    assert units.count(25_557_032) == "25.56 M"
    assert units.count(70_553_706_496) == "70.55 G"
    assert units.count(None) == "unknown"


def test_billions_of_elements_are_b_and_those_of_operations_g():
    assert units.elements(70_553_706_496) == "70.55 B"
    assert units.elements(43_600_000_000, 3) == "43.6 B"
    assert units.elements(1_000_000_000_000) == "1.000 T"
    assert units.elements(25_557_032) == "25.56 M"
    assert units.elements(9_999) == "9,999"
    assert units.elements(None) == "unknown"
    assert units.amount(7e9, "", "parameters") == "7.000 B"
    assert units.amount(7e9, "", "params", 2) == "7.0 B"
    assert units.amount(7e9, "", "flops") == "7.000 G"
    assert units.amounts(7e9, 8e9, "", "params") == ("7.000 B", "8.000 B")


def test_an_interval_is_shown_in_one_unit():
    assert units.times(0.9e-3, 1.1e-3) == "0.9000 … 1.100 ms"
    assert units.times(2.16e-3, 2.73, 3) == "2.16 ms … 2.73 s"  # not 0.00216 … 2.73 s
    assert units.times(0, 2.73, 3) == "0 … 2.73 s"


def test_rate_and_percent():
    assert units.rate(81.2, "images") == "81.20 images/s"
    assert units.rate(2_345_678, "tokens") == "2.346 M tokens/s"
    assert units.percent(0.0123) == "1.2 %"
    assert units.percent(1) == "100 %"
    assert units.percent(None) == "unknown"


def test_a_percentage_too_small_to_matter_is_said_to_be_small():
    assert units.percent(4.3e-12) == units.percent(0.000999) == "<0.1 %"
    assert units.percent(-1e-17) == "<0.1 %"
    assert units.percent(0.001) == "0.10 %"
    assert units.percent(0) == "0 %"
    assert units.percent(0.00034, smallest=1e-5) == "0.034 %"  # of an interval it is the point
    assert units.percent(4.3e-12, smallest=1e-5) == "<0.001 %"


def test_exact_amounts_that_differ_look_different():
    assert units.amounts(65_799, 65_800, "") == ("65.799 k", "65.800 k")
    assert units.amounts(1_000_000_000, 1_000_000_001, "") == ("1.000000000 G", "1.000000001 G")
    assert units.amounts(1_000_000, 2_000_000, "B") == ("1.000 MB", "2.000 MB")
    assert units.amounts(None, None, "") == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.0, "0 %"),
        (4e-4, "<0.1 %"),
        (0.001, "0.1 %"),
        (0.0123, "1.2 %"),
        (1, "100.0 %"),
    ],
)
def test_a_share_has_one_decimal_and_a_tiny_one_says_so(fraction, text):
    assert units.share(fraction) == text
