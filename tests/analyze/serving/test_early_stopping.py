"""MLPerf's early stopping against its published numbers, and against the binomial distribution."""

import numpy as np
import pytest
from scipy import stats

from torchgauge.analyze.serving.levels import (
    early_stopping,
    queries_needed,
    queries_that_may_exceed,
)


@pytest.mark.parametrize(
    ("fraction", "over", "needed"),
    [
        (0.99, 0, 459),
        (0.90, 1, 64),
        (0.97, 1, 219),
        (0.99, 1, 662),
        (0.999, 1, 6636),
        (0.99, 10, 2010),
    ],
)
def test_published_numbers(fraction, over, needed):
    assert queries_needed(fraction, over) == needed


@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("over", [0, 1, 7, 100])
def test_one_query_fewer_would_leave_more_than_one_percent(fraction, over):
    needed = queries_needed(fraction, over)
    assert stats.binom.cdf(over, needed, 1 - fraction) <= 0.01
    assert stats.binom.cdf(over, needed - 1, 1 - fraction) > 0.01


def test_how_many_may_exceed_is_the_inverse():
    assert queries_that_may_exceed(0.99, 458) is None
    assert queries_that_may_exceed(0.99, 459) == 0
    assert queries_that_may_exceed(0.99, 2009) == 9
    assert queries_that_may_exceed(0.99, 2010) == 10


def test_the_server_is_judged_against_its_limit():
    latencies = np.concatenate((np.full(1999, 0.01), np.full(10, 0.5)))
    few = early_stopping(latencies, "server", 0.1)
    assert (few.over, few.needed, few.passed) == (10, 2010, False)
    enough = early_stopping([*latencies, 0.01], "server", 0.1)
    assert (enough.queries, enough.passed) == (2010, True)


def test_a_stream_has_the_latency_of_the_query_that_may_exceed():
    """Of 64 queries one may exceed p90, so that the largest is the estimate; of 63 none may."""
    assert early_stopping(np.arange(64.0), "single-stream").estimate == 63.0
    assert early_stopping(np.arange(63.0), "single-stream").estimate is None
    assert early_stopping(np.arange(63.0), "single-stream").passed is False
    assert early_stopping([*range(63), np.inf], "single-stream").passed is False


def test_offline_has_no_rule():
    assert early_stopping(np.ones(10), "offline") is None
