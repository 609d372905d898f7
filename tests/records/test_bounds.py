"""What cannot be negative is refused where a record is decoded, whatever its kind."""

import copy
import json
import re
from collections.abc import Iterator

import pytest
from tests.attack.record_kinds import KINDS

from torchgauge.errors import RecordError
from torchgauge.records import codec
from torchgauge.records.record import Interval

CHANGES = """
    allocated autocorrelation baseline change contribution correlation cosine covariance current
    difference differences extra_time growth margin metric_after metric_before one_off overhead
    remainder seconds size skew slope total unexplained
"""
FITS = "cells fixed marginal per_sample per_token points spread value"
OTHER_CLOCKS = "begin lateness lateness_max lateness_p99 time timeline"
GIVEN = "address device internal limit runs stream streams"
ENDS = "low high"  # of an interval of a difference
SIGNED = {*CHANGES.split(), *FITS.split(), *OTHER_CLOCKS.split(), *GIVEN.split(), *ENDS.split()}


def numbers(value, path="$") -> Iterator[tuple[str, list, object]]:
    """Yield the path, its holder and key of every positive number."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in entries:
        place = f"{path}[...]" if isinstance(value, list) else f"{path}.{key}"
        if isinstance(item, dict | list):
            yield from numbers(item, place)
        elif isinstance(item, int | float) and not isinstance(item, bool) and item > 0:
            yield place, value, key


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_is_not_negated_but_where_its_name_is_of_a_difference(kind):
    refused = 0
    for record in copy.deepcopy(KINDS[kind]()):
        places = {path: (holder, key) for path, holder, key in numbers(record)}
        for path, (holder, key) in places.items():
            number, holder[key] = holder[key], -holder[key]
            try:
                codec.decode(json.dumps(record).encode())
                assert re.findall(r"\w+", path)[-1] in SIGNED, path
            except RecordError:
                refused += 1
            holder[key] = number
    assert refused


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (1.0, -1.0), (1.0, 1.0 - 1e-6)])
def test_an_interval_has_its_ends_in_order(low, high):
    with pytest.raises(RecordError) as caught:
        Interval(low=low, high=high)
    assert caught.value.id == "interval-reversed"
    assert Interval(low=high, high=low)
    assert Interval(low=low, high=low * (1 - 1e-15))  # by rounding
