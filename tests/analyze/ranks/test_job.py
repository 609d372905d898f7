"""Ranks side by side where they work in groups: tensor and data parallel at once."""

import numpy as np
import pytest
from tests.support.kineto_events import launched, mark, read

from torchgauge.analyze.communication.collectives import Calls, Message
from torchgauge.analyze.ranks.job import job
from torchgauge.analyze.trace.rank_trace import rank_trace

ROUNDS = 20
CLOCKS = [0, 5000, -3000, 7000]  # µs
TENSOR, DATA = ([0, 1], [2, 3]), ([0, 2], [1, 3])


def allreduce(start, duration, group, name):
    return launched(
        "ncclDevKernel_AllReduce_Sum_f32", start, duration, at=start - 5, stream=9,
        **{"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
           "dtype": "Float", "Group size": 2, "Process Group Name": name,
           "Process Group Ranks": str(group)},
    )  # fmt: skip


def one_rank(rank, *, groups=True):
    """In each round both pairs work apart, 37 µs from each other; then both halves meet.

    Rank 1 comes 20 µs after 0, and 3 comes 40 µs after 2; a transfer takes 30 µs.
    """
    found = []
    for number in range(ROUNDS):
        begin = 10_000 + 1000 * number + CLOCKS[rank]
        pair, half = rank // 2, rank % 2
        late = (20, 40)[pair]
        apart = 37 * number * pair
        found += launched("gemm", begin + apart, 50 + late * half, at=begin - 5)
        tensor = begin + apart + 60
        found += allreduce(tensor + late * half, 30 + late * (1 - half), TENSOR[pair], "tensor")
        if groups:
            found += allreduce(begin + 600, 30, DATA[half], f"data{half}")
    return rank_trace(read(*found, baseTimeNanoseconds=0), f"{rank}.json")


def together(ranks, **more):
    return put({rank: one_rank(rank, **more) for rank in ranks})


def put(found):
    return job(
        {rank: one for rank, (one, _) in found.items()},
        {rank: calls for rank, (_, calls) in found.items()},
    )


def test_a_collective_is_put_beside_those_of_its_group_alone():
    found, ranks = together(range(4))
    assert found.unmatched == 0
    assert found.calls == 4 * ROUNDS  # two groups of each kind
    ahead = [one.skew for one in found.waits]
    assert ahead == pytest.approx([(clock - 2500) * 1e-6 for clock in CLOCKS])
    assert [one.waits for one in found.waits] == pytest.approx([4e-4, 0, 8e-4, 0])
    assert [one.waited_for for one in found.waits] == pytest.approx([0, 4e-4, 0, 8e-4])
    assert [one.rank for one in found.stragglers] == [3, 1]  # one of each pair
    assert found.straggler == 3
    for rank, wait in zip(ranks, (4e-4, 0, 8e-4, 0), strict=True):
        (row,) = rank.collectives  # both groups are of two ranks
        assert (row.calls, row.wait) == (2 * ROUNDS, pytest.approx(wait))
        assert row.transfer == pytest.approx(2 * ROUNDS * 30e-6)


def test_nanoseconds_count_however_long_ago_1970_is():
    def one(rank):
        parts = [
            allreduce(1000 * number + 0.1 * rank, 30, [0, 1], "pair") for number in range(1, 4)
        ]
        since = 1_700_000_000_000_000_001
        return rank_trace(read(*parts, baseTimeNanoseconds=since), f"{rank}.json")

    found, ranks = put({rank: one(rank) for rank in (0, 1)})
    assert [one.skew for one in found.waits] == pytest.approx([-50e-9, 50e-9], abs=1e-12)
    assert [one.waits for one in found.waits] == [0, 0]
    assert ranks[0].collectives[0].transfer == pytest.approx(90e-6, abs=1e-12)


def test_groups_that_share_no_rank_are_not_put_beside_each_other():
    found, _ = together(range(4), groups=False)
    assert (found.calls, found.unmatched) == (2 * ROUNDS, 0)
    assert [one.waits for one in found.waits] == pytest.approx([4e-4, 0, 8e-4, 0])
    # How far the clocks of one pair are from those of the other, nothing says.
    assert [one.skew for one in found.waits] == pytest.approx([-2.5e-3, 2.5e-3, -5e-3, 5e-3])


def test_of_a_group_with_one_file_nobody_knows_who_waited():
    found, ranks = together([0, 1, 2])
    assert found.unmatched == 2  # the pair of 2 and 3, and that of 1 and 3
    assert found.calls == 2 * ROUNDS
    assert [one.wait for one in ranks[2].collectives] == [None]


def test_a_rank_that_was_cut_off_leaves_the_others_beside_each_other():
    def cut(rank, calls):
        comes = 10_000 + (50 if rank == 2 else 0)
        parts = [
            allreduce(comes + 1000 * number, 130 if rank != 2 else 80, [0, 1, 2, 3], "all")
            for number in range(calls)
        ]
        return rank_trace(read(*parts, baseTimeNanoseconds=0), f"{rank}.json")

    found, ranks = put({rank: cut(rank, 6 if rank == 3 else 10) for rank in range(4)})
    assert (found.calls, found.unmatched) == (10, 1)
    assert found.straggler == 2
    # What nobody knows of the one is no 0.
    assert [one.rank for one in found.waits] == [0, 1, 2]
    assert ranks[3].collectives[0].wait is None
    assert ranks[0].collectives[0].wait == pytest.approx(10 * 50e-6)


def calls(*ranks, name="allreduce"):
    """One collective of these ranks: begin and end in µs of each call."""
    said = Message(name, "Float", 4000, len(ranks))
    return [
        Calls({said: tuple(1000 * np.array(each, np.int64).T)} if each else {}) for each in ranks
    ]


def side_by_side(*found):
    one = one_rank(0)[0]  # of 10 ms
    return job(dict.fromkeys(range(len(found)), one), dict(enumerate(found)))[0]


def test_where_each_is_the_last_in_turn_none_is_a_straggler():
    each = [
        [(1000 * at + 400 * (at % 3 == rank), 1000 * at + 500) for at in range(9)]
        for rank in range(3)
    ]
    found = side_by_side(*calls(*each))
    assert [one.waited_for for one in found.waits] == pytest.approx([1.2e-3] * 3)
    assert found.straggler is None
    alone = [
        [(1000 * at + 400 * (rank == 2), 1000 * at + 500) for at in range(9)] for rank in range(3)
    ]
    assert side_by_side(*calls(*alone)).straggler == 2


def test_nobody_waits_for_one_that_comes_when_others_have_gone():
    found = side_by_side(*calls([(0, 100)] * 1, [(0, 100)] * 1, [(150, 200)] * 1))
    # On one clock they end together: the third, 100 µs ahead, came at 50.
    assert [one.waits for one in found.waits] == pytest.approx([50e-6, 50e-6, 0])
    more = [(1000 * at, 1000 * at + 100) for at in range(1, 4)]
    found = side_by_side(*calls([(0, 100), *more], [(0, 100), *more], [(150, 200), *more]))
    assert [one.waits for one in found.waits] == pytest.approx([100e-6, 100e-6, 0])


def test_what_one_side_has_alone_is_not_put_together():
    parts = launched(
        "ncclDevKernel_SendRecv", 100, 30, at=5,
        **{"Collective name": "send", "In msg nelems": 10, "dtype": "Float", "Group size": 2},
    )  # fmt: skip
    assert rank_trace(read(*parts), "0.json")[1].by_message == {}


def test_where_no_count_is_that_of_most_ranks_nothing_is_put_together():
    found, _ = put({rank: one_rank(rank) for rank in (0, 1)} | {2: (one_rank(2)[0], Calls({}))})
    assert [one.rank for one in found.waits] == [0, 1]
    assert found.unmatched == 2  # the two groups of data, each with one file


def exchange(rank, late, *, named):
    """Ranks send to each other, and rank 2 comes late; the kernels have no arguments."""
    found = []
    for number in range(ROUNDS):
        begin = 10_000 + 1000 * number + CLOCKS[rank]
        wait = late if rank == 2 else 0
        if named:
            found.append(mark("nccl:all_to_all", begin + wait - 10, 8))
        kernel = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
        found += launched(kernel, begin + wait, 130 - wait, at=begin + wait - 5, stream=9)
    return rank_trace(read(*found, baseTimeNanoseconds=0), f"{rank}.json")


def test_an_all_to_all_is_known_by_the_host_s_name_whatever_its_kernel():
    job, ranks = put({rank: exchange(rank, 100, named=True) for rank in range(4)})
    assert (job.straggler, job.calls) == (2, ROUNDS)
    assert job.lost == pytest.approx(ROUNDS * 100e-6)
    assert [record.name for record in ranks[0].collectives] == ["alltoall"]


def test_a_send_whose_collective_is_unknown_is_put_beside_no_other():
    job, ranks = put({rank: exchange(rank, 100, named=False) for rank in range(4)})
    assert (job.straggler, job.calls) == (None, 0)
    assert [record.name for record in ranks[0].collectives] == ["sendrecv"]


def uneven_exchange(rank, late):
    """Each rank sends a number of elements of its own in each call, as experts are asked for."""
    found = []
    for number in range(ROUNDS):
        begin = 10_000 + 1000 * number + CLOCKS[rank]
        wait = late if rank == 2 else 0
        elements = 1000 * (1 + (rank + number) % 3)
        found += launched(
            "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
            begin + wait, 130 - wait, at=begin + wait - 5, stream=9,
            **{"Collective name": "all_to_allv", "In msg nelems": elements,
               "Out msg nelems": elements, "dtype": "Float", "Group size": 4,
               "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]"},
        )  # fmt: skip
    return rank_trace(read(*found, baseTimeNanoseconds=0), f"{rank}.json")


def test_an_exchange_of_uneven_sizes_is_one_collective_on_all_ranks():
    job, ranks = put({rank: uneven_exchange(rank, 100) for rank in range(4)})
    assert (job.straggler, job.calls, job.unmatched) == (2, ROUNDS, 0)
    assert job.lost == pytest.approx(ROUNDS * 100e-6)
    assert job.slow == ()
    # The waits go to the sizes that each rank had.
    waits = {record.bytes: record.wait for record in ranks[0].collectives}
    calls = {size: len([n for n in range(ROUNDS) if 4000 * (1 + n % 3) == size]) for size in waits}
    assert waits == pytest.approx({size: count * 100e-6 for size, count in calls.items()})
    assert len(waits) == 3


LATENESS = ((4, 281), (7, 300), (4, 281), (7, 7600), (7, 250), (4, 281), (7, 400), (7, 350))


def recommender(rank):
    """Eight collectives of eight ranks: all-reduces, and exchanges whose kernels say nothing."""
    found, begin = [], 10_000
    for number, (last, late) in enumerate(LATENESS):
        comes = begin + (late if rank == last else rank)
        kernel = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
        if number % 2:
            found.append(mark("nccl:all_to_all", comes - 10, 8))
            kernel = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
        end = begin + late + 100
        found += launched(kernel, comes, end - comes, at=comes - 5, stream=9)
        begin = end + 5000
    return rank_trace(read(*found, baseTimeNanoseconds=0), f"{rank}.json")


def test_of_few_collectives_the_longest_wait_is_told_with_its_rank():
    """Nobody is last often enough to be called late; that all waited 7.6 ms for rank 7 is sure."""
    job, _ = put({rank: recommender(rank) for rank in range(8)})
    assert (job.calls, job.stragglers) == (8, ())
    assert job.late[0].rank == 7
    assert job.late[0].name == "alltoall"
    assert job.late[0].late == pytest.approx(7.6e-3, rel=0.01)
    assert max(job.waits, key=lambda one: one.waited_for).rank == 7
