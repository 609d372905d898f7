"""Several ranks' files as one trace: one clock, a group of processes for each."""

import gzip
import itertools
import json

import pytest
from tests.support.kineto_events import launched, mark

import torchgauge as tg
from torchgauge import InputError

BASE = 1_700_000_000_000_000_000
AHEAD = (0, 7_000, -3_000)  # µs
BASES = (0, 5_000_000, 1_000_000)  # ns
END = 900.25  # of each round's collective, µs


def name(pid, text, kind="name"):
    return {"ph": "M", "name": f"process_{kind}", "pid": pid, "tid": 0, "args": {kind: text}}


def events(rank):
    """Rounds of a kernel and a collective; each file numbers its processes and launches alike."""
    numbers = itertools.count(1)
    found = [
        name(1, "python"), name(0, "python"), name(0, "GPU 0", "labels"),
        {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0,
         "args": {"sort_index": 5_000_000}},
    ]  # fmt: skip
    for step in range(4):
        at = 10_000 + 1000 * step + AHEAD[rank] - BASES[rank] / 1000
        found.append(mark(f"ProfilerStep#{step}", at, 950))
        launch, kernel = launched("gemm", at + 50, 100 + rank, at=at + 10, numbers=numbers)
        found += [launch, kernel | {"pid": 0}]
        number = launch["args"]["correlation"]
        arrow = {"cat": "ac2g", "name": "ac2g", "id": number}
        found.append(arrow | {"ph": "s", "pid": 1, "tid": 1, "ts": at + 10})
        found.append(arrow | {"ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": at + 50})
        begin = at + 200 + 10 * rank
        found += launched(
            "ncclDevKernel_AllReduce_Sum_f32", begin, at + END - begin,
            at=at + 20, stream=9, numbers=numbers,
            **{"Collective name": "allreduce", "In msg nelems": 9, "Out msg nelems": 9,
               "dtype": "Float", "Group size": 3},
        )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks")
    for rank in range(3):
        header = {
            "distributedInfo": {"rank": rank, "world_size": 3},
            "baseTimeNanoseconds": BASE + BASES[rank],
        }
        text = json.dumps(header | {"traceEvents": events(rank)})
        (path / f"rank{rank}.json").write_text(text)
    return path


@pytest.fixture(scope="module")
def merged(folder):
    out = tg.convert_trace(folder, "chrome", folder.parent / "all.json.gz")
    return json.loads(gzip.decompress(out.read_bytes()))


def rank_of(event):
    return event["pid"] // 1000 - 1


def test_every_event_of_every_rank_is_there_as_it_was_recorded(merged):
    for rank in range(3):
        own = [event for event in merged["traceEvents"] if rank_of(event) == rank]
        recorded = events(rank)
        assert [event["name"] for event in own] == [event["name"] for event in recorded]
        assert [event.get("dur") for event in own] == [event.get("dur") for event in recorded]
    assert merged["mergedRanks"] == [0, 1, 2]


def test_collectives_end_together_on_the_one_clock(merged):
    ends = {}
    for event in merged["traceEvents"]:
        if event["name"].startswith("nccl"):
            ends.setdefault(rank_of(event), []).append(event["ts"] + event["dur"])
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)
    assert ends[0] == pytest.approx(ends[2], abs=1e-3)
    # The middle clock is rank 0's: its times stay where they were since 1970.
    first = min(event["ts"] for event in merged["traceEvents"] if "ts" in event)
    assert first == 0
    assert merged["baseTimeNanoseconds"] == BASE + 10_000_000


def test_each_rank_has_its_processes_by_name_and_order(merged):
    names, places = {}, {}
    for event in merged["traceEvents"]:
        if event["name"] == "process_name":
            names.setdefault(rank_of(event), set()).add((event["pid"], event["args"]["name"]))
        if event["name"] == "process_sort_index":
            places[rank_of(event)] = event["args"]["sort_index"]
    assert {rank: len(own) for rank, own in names.items()} == {0: 2, 1: 2, 2: 2}
    assert all(text == f"rank {rank}: python" for rank, own in names.items() for _, text in own)
    assert places[0] < places[1] < places[2]


def test_arrows_and_launches_join_events_of_one_rank(merged):
    ends, correlated = {}, {}
    for event in merged["traceEvents"]:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], []).append((rank_of(event), event["ph"]))
        number = event.get("args", {}).get("correlation")
        if number:
            correlated.setdefault(number, []).append(rank_of(event))
    assert sorted(ends.values()) == [
        [(rank, "s"), (rank, "f")] for rank in range(3) for _ in range(4)
    ]
    assert sorted(correlated.values()) == [[rank] * 2 for rank in range(3) for _ in range(8)]


def test_a_part_is_taken_of_each_rank(folder, tmp_path):
    out = tg.convert_trace(folder, "chrome", tmp_path / "part.json", step=2)
    found = json.loads(out.read_text())["traceEvents"]
    marks = [event["name"] for event in found if event["name"].startswith("ProfilerStep")]
    assert marks == ["ProfilerStep#2"] * 3
    with pytest.raises(InputError) as error:
        tg.convert_trace(folder, "chrome", tmp_path / "none.json", step=9)
    assert error.value.id == "step-unknown"


def test_what_was_merged_is_not_read_as_one_rank(folder, merged, tmp_path):
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(merged))
    with pytest.raises(InputError) as error:
        tg.read_trace(path)
    assert error.value.id == "trace-merged"
