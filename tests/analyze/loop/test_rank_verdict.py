"""Which rank the others wait for, from the times of each rank's steps."""

import numpy as np
import pytest
from tests.support.loops import loop, step_times

from torchgauge.analyze.loop.loop_verdict import loop_verdict
from torchgauge.analyze.loop.rank_verdict import rank_verdict
from torchgauge.analyze.ranks.ranks import merged

CLEAN = {"forward": 0.010, "backward": 0.020, "optimizer": 0.003, "outside": 0.001}


def ranks(*seconds, noise=0.03, count=50):
    """Return the loops of ranks that wait for the slowest in each step."""
    times = [step_times(count, noise, seed, **{**CLEAN, **own}) for seed, own in enumerate(seconds)]
    own = np.array([each.durations for each in times])
    loops = {}
    for number, (each, waiting) in enumerate(zip(times, own.max(axis=0) - own, strict=True)):
        series = {kind: each.seconds(kind) for kind in ("loading", *CLEAN, "collecting")}
        with_waiting = step_times(count, waiting=waiting + 0.0005, **series)
        record = loop(with_waiting, number=number, world=len(seconds))
        loops[number] = record.__class__(
            **{f: getattr(record, f) for f in record.__struct_fields__ if f != "verdict"},
            verdict=loop_verdict(record),
        )
    return loops


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("forward", "forward"),
        ("backward", "backward"),
        ("loading", "data loading"),
        ("collecting", "garbage collection"),
        ("outside", "host code"),
    ],
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_rank_that_needs_a_tenth_more_is_named_with_what_it_does(kind, what, number):
    own = [{} for _ in range(3)]
    own[number] = {kind: CLEAN.get(kind, 0.0) + 0.0034}
    found = rank_verdict(ranks(*own), "out/")
    assert (found.bound, found.fault, found.rank, found.cause) == ("rank", True, number, what)
    assert found.interval.low < 0.0034 / found.time < found.interval.high
    assert found.command == f"torchgauge report out/loop.rank{number}.json"


def test_a_rank_is_named_by_one_kind_of_its_time_where_the_whole_step_varies_too_much():
    found = rank_verdict(ranks({}, {"outside": CLEAN["outside"] + 0.0034}, noise=0.2))
    assert (found.rank, found.cause) == (1, "host code")
    assert found.interval.low < 0.0034 / found.time < found.interval.high


def test_a_kind_that_takes_longer_in_a_step_that_does_not_names_nobody():
    assert rank_verdict(ranks({}, {"outside": 0.0044, "backward": 0.0166})).rank is None


def test_ranks_that_differ_by_chance_have_no_straggler():
    named = [rank_verdict(ranks({}, {}, noise=0.1 + seed / 100)).rank for seed in range(20)]
    assert named == [None] * 20


def test_one_long_delay_names_nobody():
    delayed = {"outside": [*[0.001] * 49, 0.500]}  # 30 % of all steps' time
    assert rank_verdict(ranks({}, delayed)).rank is None


def test_a_fault_of_all_ranks_is_named_without_a_rank():
    found = rank_verdict(ranks({"loading": 0.015}, {"loading": 0.015}))
    assert (found.bound, found.cause, found.rank, found.fault) == (
        "loader", "data loading", None, True,
    )  # fmt: skip
    assert "no rank is slower" in found.title


def test_a_clean_job_has_no_fault():
    assert rank_verdict(ranks({}, {}, {}, {})).fault is False


def test_ranks_are_compared_by_the_steps_that_they_have_in_common():
    loops = ranks({}, {"forward": 0.020})
    short = loop(step_times(5, first=46, **CLEAN), number=0)
    assert rank_verdict({0: short, 1: loops[1]}).bound == "unclear"
    assert rank_verdict({0: loop(None, number=0), 1: loops[1]}) is None
    assert rank_verdict({1: loops[1]}) is None


def test_the_ranks_side_by_side_have_the_verdict_and_its_straggler():
    loops = ranks({}, {"forward": 0.020})
    record = merged(list(loops.values()))
    assert (record.straggler, record.verdict.rank) == (1, 1)
    assert record.lost == pytest.approx(0.010, rel=0.05)
    assert "Rank 1 is slower" in str(record)
    assert merged(list(ranks({}, {}).values())).straggler is None


def test_ranks_that_wait_for_each_other_by_turns_are_bound_by_that():
    each = [0.300, 0.001] * 25
    own = {"outside": 0.040}  # 11 % of a step: a fault, and less than the waiting
    found = rank_verdict(ranks({"forward": each, **own}, {"forward": each[::-1], **own}))
    assert (found.bound, found.rank, found.fault) == ("communication", None, False)
    assert found.share > 0.3
