"""Findings about communication: where they appear, and where they must not."""

import msgspec
import pytest
from tests.support import evidence
from tests.support.kineto_events import launched, mark, node, op, read

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.records.record import Interval
from torchgauge.records.trace.ranks import LateCall, RankDifference, Straggler
from torchgauge.records.trace.trace import Collectives, Job, RankWait, Trace

MIB = 2**20
WINDOW = 1.0


def wait(rank, waits=0.0, kernel_time=None):
    return RankWait(rank=rank, waits=waits, waited_for=0.0, skew=0.0, kernel_time=kernel_time)


def collectives(name="allreduce", size=100 * MIB, calls=10, time=0.1, **more):
    kind = {"dtype": "Float", "group": 4, "exposed": time}
    return Collectives(name=name, bytes=size, calls=calls, time=time, **kind | more)


def trace(*, waits=(), kinds=((),) * 4, **job):
    """A job of ranks with a window of a second, half of which they compute."""
    whole = evidence.rank()
    (device,) = whole.times
    breakdown = msgspec.structs.replace(device.breakdown, window=WINDOW, compute=0.5)
    times = (msgspec.structs.replace(device, breakdown=breakdown),)
    ranks = tuple(
        msgspec.structs.replace(
            whole, rank=number, world=4, window=WINDOW, times=times, collectives=tuple(own)
        )
        for number, own in enumerate(kinds)
    )
    return Trace(name="job", ranks=ranks, job=Job(calls=100, waits=tuple(waits), **job))


def ids(record):
    return [finding.id for finding in findings(record)]


def straggler(rank, lost, *differences):
    return Straggler(
        rank=rank, lost=lost, interval=Interval(low=0.9 * lost, high=1.1 * lost),
        last=30, units=40, unit="step", differences=differences,
    )  # fmt: skip


def test_each_straggler_is_named_with_what_differs_there():
    item = RankDifference(aspect="host", extra_time=0.2, name="aten::item")
    found = findings(
        trace(stragglers=(straggler(3, 0.3, item), straggler(1, 0.05)), straggler=3, lost=0.3)
    )
    first, second = found
    assert [first.id, first.severity, first.worth] == ["straggler", "serious", 0.3]
    assert first.title == "Rank 3 comes last: the others wait 300.0 ms for it"
    assert "(270.0 ms to 330.0 ms)" in first.evidence
    assert "30 of 40 steps" in first.evidence
    assert "200.0 ms of its host (aten::item)" in first.evidence
    assert "logging" in first.remedy
    assert "Rank 1" in second.title
    assert (second.severity, second.remedy[:7]) == ("warning", "Compare")


def late_call(rank, late):
    return LateCall(name="alltoall", bytes=MIB, number=4, time=0.1, rank=rank, late=late)


def test_a_single_late_call_is_told_unless_its_rank_is_a_straggler():
    record = trace(late=(late_call(7, 0.04),))
    (finding,) = findings(record)
    assert finding.id == "late-rank"
    assert "for rank 7 in one alltoall" in finding.title
    named = trace(
        late=(late_call(3, 0.04),), stragglers=(straggler(3, 0.3),), straggler=3, lost=0.3
    )
    assert ids(named) == ["straggler"]


def test_a_rank_whose_kernels_all_take_longer_is_named():
    waits = [wait(rank, kernel_time=1.25 if rank == 2 else 1.0) for rank in range(4)]
    (finding,) = findings(trace(waits=waits))
    assert (finding.id, finding.time) == ("throttled-rank", 0.5)
    assert finding.worth == pytest.approx(0.1)  # 0.5 s at 4/5
    assert finding.title.startswith("Rank 2's kernels take 1.25 times")


@pytest.mark.parametrize("factors", [[1.0, 1.04, 0.97, 1.08], [None] * 4])
def test_devices_that_differ_by_some_percent_are_no_finding(factors):
    assert ids(trace(waits=[wait(r, kernel_time=f) for r, f in enumerate(factors)])) == []


def test_of_two_ranks_nobody_knows_which_is_the_slow_one():
    waits = [wait(0, kernel_time=0.8), wait(1, kernel_time=1.2)]
    assert ids(trace(waits=waits, kinds=((),) * 2)) == []


def test_kernels_are_compared_with_the_same_ones_of_other_ranks():
    from torchgauge.analyze.ranks.job import relative_kernel_times

    def one(factor, extra=()):
        parts = [
            launched(f"kernel_{number}", 1000 * number, 100 * (number + 1) * factor, at=5)
            for number in range(4)
        ]
        return rank_trace(read(*parts, *extra), "0.json")[0]

    # Its collective waits, and is no work; a kernel that it has alone says nothing.
    def waiting(time):
        return [launched("ncclDevKernel_AllReduce", 9000, time, at=5)]

    own = [launched("own", 90_000, 9, at=5)]
    times = relative_kernel_times(
        [one(1, waiting(2000)), one(1, waiting(50_000) + own), one(1.5, waiting(2000)), one(1)]
    )
    assert times == pytest.approx([1, 1, 1.5, 1])
    few = rank_trace(read(launched("kernel_0", 0, 100, at=5)), "0.json")[0]
    assert relative_kernel_times([one(1), one(1), few]) == [1, 1, None]


def test_ranks_that_wait_in_turn_have_uneven_work():
    (finding,) = findings(trace(waits=[wait(rank, 0.2) for rank in range(4)]))
    assert (finding.id, finding.time) == ("uneven-work", 0.2)


def test_a_little_waiting_or_that_for_a_straggler_is_no_uneven_work():
    assert ids(trace(waits=[wait(rank, 0.05) for rank in range(4)])) == []
    named = trace(
        waits=[wait(rank, 0.3 * (rank != 3)) for rank in range(4)],
        stragglers=(straggler(3, 0.3),), straggler=3, lost=0.3,
    )  # fmt: skip
    assert ids(named) == ["straggler"]


def exchanges(*sizes):
    return [[collectives("alltoallv", size)] for size in sizes]


def test_an_exchange_that_one_rank_dominates_is_told():
    (finding,) = findings(trace(kinds=exchanges(MIB, MIB, 5 * MIB, MIB)))
    assert finding.id == "uneven-exchange"
    assert finding.title.startswith("Rank 2 exchanges 2.5 times")
    assert (finding.time, finding.worth) == (0.1, pytest.approx(0.06))


def test_an_even_or_unknown_exchange_is_no_finding():
    assert ids(trace(kinds=exchanges(MIB, MIB, 1.2 * MIB, MIB))) == []
    assert ids(trace(kinds=exchanges(None, None, None, None))) == []


def fast_and_slow(bandwidth, **more):
    fast = collectives(size=50 * MIB, transfer=0.05, bus_bandwidth=200e9)
    slow = collectives(**{"size": 100 * MIB, "transfer": 0.1, "bus_bandwidth": bandwidth} | more)
    return trace(kinds=[[fast, slow]] * 4)


def test_a_large_message_that_is_slower_than_a_smaller_one_is_told():
    (finding,) = findings(fast_and_slow(50e9))
    assert (finding.id, finding.time, finding.worth) == ("slow-bandwidth", 0.1, 0.1 * 0.75)


@pytest.mark.parametrize(
    ("bandwidth", "more"),
    [
        (150e9, {}),  # about as fast
        (50e9, {"group": 2}),  # other links, perhaps
        (50e9, {"calls": 1}),  # what one call met says little
        (50e9, {"name": "alltoall"}),
        (50e9, {"transfer": None}),  # it may have waited
    ],
)
def test_bandwidths_that_cannot_be_compared_are_no_finding(bandwidth, more):
    assert ids(fast_and_slow(bandwidth, **more)) == []


def step(calls, elements, *, backward=True, stream=9):
    """A backward pass with as many collectives, beside which nothing is computed."""
    parts = [op("aten::mm", 0, 10, sequence=1), launched("gemm", 30, 1000, at=5)]
    if backward:
        parts += [node("MmBackward0", 100, 50, sequence=1)]
    for number in range(calls):
        parts += launched(
            "ncclDevKernel_AllReduce_Sum_f32", 1100 + 25 * number, 20, at=20, stream=stream,
            **{"Collective name": "allreduce", "In msg nelems": elements,
               "Out msg nelems": elements, "dtype": "Float", "Group size": 4},
        )  # fmt: skip
    return rank_trace(read(*parts), "0.json")[0]


def test_many_small_collectives_are_to_be_joined():
    (finding,) = (f for f in findings(step(60, 1000)) if f.id == "small-collectives")
    assert finding.title == "60 of 60 collectives have less than 1 MiB: 4.000 kB on average"
    assert finding.time == pytest.approx(60 * 20e-6)
    assert "bucket_cap_mb" in finding.remedy


@pytest.mark.parametrize(
    "options",
    [
        {"calls": 60, "elements": 10**6},  # 4 MB
        {"calls": 8, "elements": 1000},
        {"calls": 60, "elements": 1000, "backward": False},  # tensor parallel inference
    ],
)
def test_large_few_or_dependent_collectives_are_not_to_be_joined(options):
    assert "small-collectives" not in ids(step(**options))


def test_collectives_among_the_computation_s_kernels_are_told_instead_of_exposed_ones():
    found = ids(step(60, 10**6, stream=7))
    assert "collectives-on-compute-stream" in found
    assert "exposed-communication" not in found
    elsewhere = ids(step(60, 10**6, stream=9))
    assert "collectives-on-compute-stream" not in elsewhere
    assert "exposed-communication" in elsewhere


def data_parallel(*, last=400, overlapping=True, steps=3):
    """Steps whose collectives run beside the backward pass, but for the last."""
    parts = []
    for number in range(steps):
        at = 10_000 * (number + 1)
        parts += [
            mark(f"ProfilerStep#{number}", at, 9000),
            op("aten::mm", at, 10, sequence=number + 1),
            node("MmBackward0", at + 100, 50, sequence=number + 1),
            launched("gemm", at + 300, 2000, at=at + 5),
        ]
        first = at + 400 if overlapping else at + 2300
        parts.append(launched("ncclDevKernel_AllReduce", first, 1000, at=at + 20, stream=9))
        begin = max(at + 2300, first + 1000)
        parts.append(launched("ncclDevKernel_AllReduce", begin, last, at=at + 30, stream=9))
    return rank_trace(read(*parts), "0.json")[0]


def test_the_last_bucket_of_each_step_is_the_cause_of_exposed_communication():
    found = findings(data_parallel())
    (finding,) = (f for f in found if f.id == "last-collective")
    assert finding.time == pytest.approx(3 * 400e-6)
    assert "100 % of the rest overlaps" in finding.evidence
    assert "exposed-communication" not in [f.id for f in found]


@pytest.mark.parametrize("options", [{"overlapping": False}, {"last": 50}, {"steps": 1}])
def test_the_last_bucket_is_no_cause_where_none_overlaps_or_it_is_short(options):
    assert "last-collective" not in ids(data_parallel(**options))


def transferring(transfer, compute=0.2):
    whole = trace(kinds=[[collectives(time=0.7, transfer=transfer)]] * 4)
    ranks = []
    for rank in whole.ranks:
        (device,) = rank.times
        breakdown = msgspec.structs.replace(
            device.breakdown, compute=compute, communication=0.7, exposed_communication=0.6
        )
        times = (msgspec.structs.replace(device, breakdown=breakdown),)
        ranks.append(msgspec.structs.replace(rank, times=times))
    return msgspec.structs.replace(whole, ranks=tuple(ranks))


def test_communication_that_waits_for_others_is_not_to_be_overlapped_first():
    rank = step(60, 10**6)

    def remedy(wait):
        kinds = tuple(msgspec.structs.replace(kind, wait=wait) for kind in rank.collectives)
        found = findings(msgspec.structs.replace(rank, collectives=kinds))
        (finding,) = (f for f in found if f.id == "exposed-communication")
        return finding.remedy, finding.evidence

    assert remedy(None)[0].startswith("Overlap it")
    assert remedy(0.0001)[0].startswith("Overlap it")  # of 1.2 ms
    text, evidence = remedy(0.001)
    assert text.startswith("Even out the ranks' work first")
    assert "waits 1.000 ms for other ranks" in evidence


def test_transfers_that_take_longer_than_computation_cannot_be_hidden():
    (finding,) = findings(transferring(0.7))
    assert finding.id == "communication-bound"
    assert finding.time == pytest.approx(0.5)


@pytest.mark.parametrize("record", [transferring(0.1), transferring(None), transferring(0.7, 0.6)])
def test_waiting_or_little_transfer_is_not_communication_bound(record):
    assert ids(record) == []


def test_no_finding_is_worth_more_than_the_time_it_speaks_of():
    records = [
        trace(kinds=exchanges(MIB, MIB, 5 * MIB, MIB)),
        fast_and_slow(50e9),
        data_parallel(),
        transferring(0.7),
        step(60, 1000),
        step(60, 1000, stream=7),
    ]
    for record in records:
        window = record.window if hasattr(record, "window") else WINDOW
        for finding in findings(record):
            assert (finding.worth or 0) <= (finding.time or 0) <= window
