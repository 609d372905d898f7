"""All-to-alls by the rank that gets what is sent, as far as the file says it."""

import msgspec
import pytest
from tests.support.kineto_events import launched, read

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.records import codec
from torchgauge.records.trace.trace import Trace
from torchgauge.report.page.page_trace import tables
from torchgauge.report.tables.trace_devices import exchanges


def exchange(number, *, elements=600, split="[1, 2, 3]", ranks="[0, 4, 8]", **changed):
    return launched(
        "ncclDevKernel_SendRecv", 100 * number, 50, at=5,
        **{"Collective name": "all_to_allv", "In msg nelems": elements, "Out msg nelems": 9,
           "dtype": "BFloat16", "Group size": 3, "Process Group Name": "0",
           "Process Group Ranks": ranks, "In split size": split} | changed,
    )  # fmt: skip


def test_who_sent_how_much_to_whom_is_a_table_of_the_job_and_of_each_rank():
    uneven = rank_trace(read(exchange(1)), "0.json")[0]
    even = rank_trace(read(exchange(1, split="[]")), "1.json")[0]
    ranks = [
        msgspec.structs.replace(record, rank=number)
        for number, record in ((0, uneven), (4, even), (8, even))
    ]
    trace = Trace(name="job", ranks=tuple(ranks))
    matrix = exchanges(trace)
    assert [column.key for column in matrix.columns] == ["to 0", "to 4", "to 8"]
    assert [(row.name, list(row.cells.values())) for row in matrix.rows] == [
        ("0", [200, 400, 600]),
        ("4", [400, 400, 400]),
        ("8", [400, 400, 400]),
    ]
    assert "from rank" in str(trace)
    listed = {table["name"]: table for table in tables(ranks[0], 1000, range(9))}
    assert listed["all-to-all"]["rows"] == 3
    assert codec.decode(codec.encode(trace)).ranks[0].sent == {0: 200, 4: 400, 8: 600}


def test_of_many_ranks_those_that_send_and_get_most_are_shown():
    members = list(range(12))
    rows = str([5 if member == 11 else 1 for member in members])
    record = rank_trace(read(exchange(1, elements=1600, split=rows, ranks=str(members))), "0")[0]
    ranks = tuple(msgspec.structs.replace(record, rank=number) for number in members)
    matrix = exchanges(Trace(name="job", ranks=ranks))
    assert len(matrix.rows) == len(matrix.columns) == 8
    assert matrix.columns[-1].key == "to 11"
    assert matrix.rows[0].cells["to 11"] == 5 * 200


def sent(*parts):
    return rank_trace(read(*parts), "0.json")[0].sent


def test_what_goes_to_each_rank_follows_from_the_rows_of_the_split():
    # 600 elements of 2 bytes: 100, 200, 300 of them.
    assert sent(exchange(1)) == {0: 200, 4: 400, 8: 600}
    # And twice, once more evenly, and once to a group of two.
    parts = [exchange(1), exchange(2), exchange(3, split="[]", elements=300)]
    parts.append(exchange(4, split="[0, 5]", ranks="[0, 1]", elements=50))
    assert sent(*parts) == {0: 600, 1: 100, 4: 1000, 8: 1400}


@pytest.mark.parametrize(
    "changed",
    [
        {"split": "[1, 2, ..., 3]"},  # Kineto cuts long lists
        {"split": "[1, 2]"},
        {"split": "[0, 0, 0]"},
        {"split": "[-1, 2, 3]"},
        {"ranks": "[]"},
        {"dtype": "Unheard"},
        {"In msg nelems": "many"},
    ],
)
def test_the_sum_of_some_exchanges_is_not_taken_for_all(changed):
    assert sent(exchange(1), exchange(2, **changed)) == {}


def test_without_a_split_or_an_exchange_nothing_is_known():
    parts = launched("ncclDevKernel_SendRecv", 100, 50, at=5, **{"Collective name": "all_to_allv"})
    assert sent(parts) == {}
    assert sent(launched("gemm", 10, 5, at=5)) == {}
