"""Amounts with units against values worked out by hand."""

import functools
import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.errors import InputError
from torchgauge.quantities import (
    COUNTS,
    RATES,
    SIZES,
    TIMES,
    Amount,
    amount,
    fraction,
    meant,
    period,
    reported_size,
    setting,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("100ms", "s", 0.1),
        ("20 ms", "s", 0.02),
        ("1.5s", "s", 1.5),
        (".5ms", "s", 0.0005),
        ("250us", "s", 0.00025),
        ("250µs", "s", 0.00025),  # micro sign
        ("250μs", "s", 0.00025),  # Greek mu
        ("3ns", "s", 3e-9),
        ("1e-3s", "s", 0.001),
        ("2GB", "B", 2_000_000_000),
        ("2GiB", "B", 2_147_483_648),
        ("1.5MiB", "B", 1_572_864),
        ("10kB", "B", 10_000),
        ("10KiB", "B", 10_240),
        ("7B", "B", 7),
        ("7B", "", 7e9),  # as parameters are shown
        ("1TB", "B", 10**12),
        ("25M", "", 25_000_000),
        ("25000", "", 25_000),
        ("1.8 G", "", 1_800_000_000),
        ("4GFLOP", "", 4_000_000_000),
        ("4 GFLOPs", "", 4_000_000_000),
        ("2TMACs", "", 2 * 10**12),
        ("3k", "", 3_000),
    ],
)
def test_what_people_write(text, unit, value):
    assert amount(text, unit) == Amount(value)


@pytest.mark.parametrize(
    ("text", "value", "of"),
    [
        ("1000samples/s", 1000, "samples"),
        ("1 sample/s", 1, "samples"),
        ("2.5ktokens/s", 2500, "tokens"),
        ("2.5 k tokens / s", 2500, "tokens"),
        ("30images/s", 30, "images"),
        ("10requests/s", 10, "calls"),
        ("10 calls/s", 10, "calls"),
    ],
)
def test_rates_say_what_they_count(text, value, of):
    assert amount(text, "1/s") == Amount(value, of)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("100", "s"),  # units are mandatory
        ("2", "B"),
        ("1000", "1/s"),
        ("1000/s", "1/s"),
        ("1000samples", "1/s"),
        ("1000samples/min", "1/s"),
        ("100MS", "s"),
        ("2gb", "B"),
        ("2Gb", "B"),  # a gigabit
        ("4GFLOPS", ""),  # a rate
        ("-1ms", "s"),
        ("1,5ms", "s"),
        ("1e999ms", "s"),
        ("1e308s", "s"),  # a number, and none in any other unit
        ("1e308TB", "B"),
        ("9" * 400, ""),
        ("1e308samples/s", "1/s"),
        ("nan", ""),
        ("inf", ""),
        ("ms", "s"),
        ("", "s"),
        ("1ms2ms", "s"),
        ("0x10", ""),
        ("٣ms", "s"),
    ],
)
def test_what_is_none(text, unit):
    assert amount(text, unit) is None


@pytest.mark.parametrize(
    ("text", "unit", "better"),
    [
        ("100", "s", "100ms"),
        ("100MS", "s", "100ms"),
        ("2gb", "B", "2GB"),
        ("2gib", "B", "2GiB"),
        ("512", "B", "512MB"),
        ("1000", "1/s", "1000samples/s"),
        ("5Tokens", "1/s", "5tokens/s"),
        ("4gflop", "", "4GFLOP"),
        ("4x", "", None),
        ("fast", "s", None),
        ("1e308", "B", None),
        ("1e308tb", "B", None),
    ],
)
def test_what_was_meant(text, unit, better):
    assert meant(text, unit) == better


@given(
    number=st.decimals(min_value=0, max_value=10**6, places=3),
    unit=st.sampled_from(["s", "B", ""]),
    data=st.data(),
)
def test_every_unit_scales(number, unit, data):
    known = {"s": TIMES, "B": SIZES, "": COUNTS}[unit]
    written = data.draw(st.sampled_from(sorted(known)))
    found = amount(f"{number}{written}", unit)
    assert found.value == pytest.approx(float(number) * known[written])


@given(st.text(max_size=30), st.sampled_from(["s", "B", "", "1/s"]))
def test_any_text_is_an_amount_or_none(text, unit):
    found = amount(text, unit)
    assert found is None or (0 <= found.value < float("inf") and found.of in {"", *RATES.values()})
    better = meant(text, unit)
    assert better is None or amount(better, unit) is not None


def outcome(parse, *arguments):
    """Return what is parsed, or how the refusal calls it."""
    try:
        value = parse(*arguments)
    except InputError as error:
        return error.message.split(" is ", 1)[1]
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value


CORPUS = json.loads(Path(__file__).with_name("data").joinpath("quantities.json").read_text("utf-8"))
TEXTS = [n + u for n in CORPUS["numbers"] for u in CORPUS["units"]] + CORPUS["others"]
PARSERS = {
    **{unit or "count": functools.partial(amount, unit=unit) for unit in ("s", "B", "1/s", "")},
    **{
        f"meant {unit or 'count'}": functools.partial(meant, unit=unit)
        for unit in ("s", "B", "1/s", "")
    },
    "fraction": fraction,
    "setting": setting,
    "period": period,
}


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_accepted_and_how_it_is_refused_stays(name):
    # As the parsers of options, rules and tolerances had it when there were three of them. A
    # result that is not listed is the usual one: None, or the usual refusal.
    assert set(CORPUS["results"]) == set(PARSERS)
    usual = CORPUS["usual"].get(name)
    results = {text: outcome(PARSERS[name], text) for text in TEXTS}
    unusual = {text: result for text, result in results.items() if result != usual}
    assert unusual == CORPUS["results"][name]


@pytest.mark.parametrize(
    ("message", "before", "after", "size"),
    [
        ("Tried to allocate 2.00 GiB. GPU 0", "tried to allocate ", "", 2 * 2**30),
        ("you tried to allocate 400 bytes. Error", "tried to allocate ", "", 400),
        ("17.25 GiB allowed; 3 MiB in use", "", " allowed", 17 * 2**30 + 2**28),
        ("3 MiB in use", "", " allowed", None),
    ],
)
def test_sizes_in_torch_s_messages(message, before, after, size):
    assert reported_size(message, before, after) == size
