"""Simulated jobs: nobody is named without a cause, and all who are late with one."""

import pytest
from tests.support.kineto_events import launched, op, read
from tests.support.simulated_jobs import job_calls

from torchgauge.analyze.ranks.job import job
from torchgauge.analyze.trace.rank_trace import rank_trace

JOBS = 100


def compared(calls, seconds=None):
    """The job of these calls, whose window is that of its collectives."""
    whole, _ = rank_trace(read(launched("gemm", 10, 90, at=5)), "0.json")
    begin = min(begin.min() for rank in calls.values() for begin, _ in rank.by_message.values())
    end = max(end.max() for rank in calls.values() for _, end in rank.by_message.values())
    import msgspec

    window = (end - begin) * 1e-9 - 0.02  # the clocks
    ranks = {rank: msgspec.structs.replace(whole, rank=rank, window=window) for rank in calls}
    return job(ranks, calls)[0]


def named(calls):
    return [straggler.rank for straggler in compared(calls).stragglers]


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {"ranks": 2, "steps": 20},
        {"ranks": 8, "steps": 20, "per_step": 4, "marked": True},
        # Calls of one step are late together, and nothing says which these are.
        {"ranks": 8, "steps": 10, "per_step": 4},
    ],
)
def test_of_jobs_without_a_fault_one_of_a_hundred_names_a_rank(shape):
    """The alternative, the rank that is waited for most, would name one in most of them."""
    jobs = [job_calls(seed=seed, spread=0.1, hiccups=0.02, **shape) for seed in range(JOBS)]
    records = [compared(calls) for calls in jobs]
    false_alarms = sum(bool(record.stragglers) for record in records)
    assert false_alarms <= 2
    noticeable = sum(bool(record.late) for record in records)
    assert noticeable > JOBS / 2  # there was something to be mistaken about


def test_one_late_rank_is_named_with_its_interval():
    found = compared(job_calls(8, 40, seed=1, spread=0.1, late={5: 0.5}, marked=True))
    (straggler,) = found.stragglers
    assert (found.straggler, found.lost) == (straggler.rank, straggler.lost) == (5, straggler.lost)
    assert straggler.interval.low < straggler.lost < straggler.interval.high
    assert straggler.lost == pytest.approx(40 * 0.5e-3, rel=0.15)  # half of 1 ms in each step
    assert (straggler.unit, straggler.units) == ("step", 40)
    assert straggler.last >= 38


@pytest.mark.thorough
def test_the_interval_holds_the_sum_that_other_steps_would_have_given():
    late = {"spread": 0.1, "late": {5: 0.5}, "marked": True}
    others = sorted(compared(job_calls(8, 40, seed=seed, **late)).lost for seed in range(100, 140))
    (straggler,) = compared(job_calls(8, 40, seed=1, **late)).stragglers
    width = straggler.interval.high - straggler.interval.low
    assert width == pytest.approx(others[38] - others[1], rel=0.5)


@pytest.mark.parametrize("marked", [True, False])
def test_a_late_rank_does_not_hide_behind_a_later_one(marked):
    calls = job_calls(8, 40, seed=2, spread=0.03, late={1: 0.5, 6: 1.0}, marked=marked)
    found = compared(calls)
    assert [straggler.rank for straggler in found.stragglers] == [6, 1]
    assert found.straggler == 6


def test_one_long_delay_names_no_rank_but_its_call():
    calls = job_calls(4, 40, seed=3, spread=0.01)
    (message,) = calls[2].by_message
    begin, end = calls[2].by_message[message]
    begin[7] -= 1
    for rank in (0, 1, 3):  # wait 30 ms for rank 2
        calls[rank].by_message[message][1][7:] += 30_000_000
        calls[rank].by_message[message][0][8:] += 30_000_000
    begin[7:] += 30_000_000
    end[7:] += 30_000_000
    found = compared(calls)
    assert found.stragglers == ()
    (late,) = found.late
    assert (late.rank, late.number) == (2, 7)
    assert late.late == pytest.approx(30e-3, rel=0.05)


def host_late(rank, *, late):
    """20 rounds of a kernel and a collective; a late rank's host is in `aten::item` meanwhile."""
    parts = []
    for number in range(20):
        at = 1000 + 1000 * number
        busy = 300 if rank in late else 0
        parts.append(op("aten::item" if busy else "aten::add", at, 20 + busy))
        parts += launched("gemm", at + busy + 30, 100, at=at + busy + 25)
        arrives = at + busy + 140
        parts += launched(
            "ncclDevKernel_AllReduce_Sum_f32", arrives, at + 500 - arrives,
            at=at + busy + 27, stream=9,
            **{"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
               "dtype": "Float", "Group size": 4},
        )  # fmt: skip
    return rank_trace(read(*parts, baseTimeNanoseconds=0), f"{rank}.json")


def test_what_a_late_rank_s_host_did_is_compared_with_the_others():
    traces = {rank: host_late(rank, late=(3,)) for rank in range(4)}
    found, _ = job(
        {rank: trace for rank, (trace, _) in traces.items()},
        {rank: calls for rank, (_, calls) in traces.items()},
    )
    (straggler,) = found.stragglers
    assert straggler.rank == 3
    assert straggler.lost == pytest.approx(20 * 300e-6)
    differences = {(one.aspect, one.name): one.extra_time for one in straggler.differences}
    assert differences["host", "aten::item"] == pytest.approx(20 * 320e-6)
    assert differences["waiting for the host", ""] == pytest.approx(20 * 300e-6, rel=0.1)
    assert "kernels" not in {what for what, _ in differences}
