"""The page of traces before a browser sees it, against figures known by hand."""

import msgspec
import pytest
from tests.support import evidence, pages, timelines
from tests.support.page_data import data, parts
from tests.support.paths import public_trace

import torchgauge as tg
from torchgauge import units
from torchgauge.records.comparison import Difference
from torchgauge.records.trace.trace import Job, MemoryUse, RankWait, SlowCall, Trace
from torchgauge.report.page import page_trace
from torchgauge.report.page.html import render

US = 1_000


@pytest.fixture
def job(tmp_path):
    return evidence.job(tmp_path)


def tables(found):
    return {one["name"]: one for one in found["tables"]}


def column(table, title):
    return next(one["values"] for one in table["columns"] if one["title"] == title)


def test_the_parts_of_devices_and_streams_add_up_to_their_window():
    found = parts(evidence.trace())["devices"]
    assert [row["name"] for row in found["rows"]] == ["GPU 0", "stream 7", "stream 8", "stream 9"]
    for row in found["rows"]:
        assert row["whole"] == sum(row["amounts"]) == 150 * US
    whole = dict(zip(found["parts"], found["rows"][0]["amounts"], strict=True))
    assert whole["compute"] == 70 * US
    assert whole["communication"] == 30 * US
    assert whole["copies"] == 10 * US
    assert sum(time for name, time in whole.items() if name.startswith("idle")) == 40 * US
    assert [row["level"] for row in found["rows"]] == [0, 1, 1, 1]
    assert dict(zip(found["more"], found["rows"][0]["more"], strict=True)) == {
        "comm. in all": "60.0 µs", "beside compute": "50 %", "copies in all": "10.0 µs",
    }  # fmt: skip


def test_the_first_screen_says_shares_of_the_devices_window():
    figures = {one["label"]: one for one in parts(evidence.trace())["overview"]["figures"]}
    assert figures["compute"]["value"] == "47 %"
    assert figures["communication"]["value"] == "20 %"
    assert figures["idle"]["value"] == "27 %"
    assert figures["FLOPs"] == {
        # 2 × 4 × 4 × 4, in 140 µs of work
        "label": "FLOPs", "value": "128", "note": "914.3 k FLOP/s",
        "how": "counted", "view": "tree",
    }  # fmt: skip


def test_everything_that_lies_between_host_and_device_has_a_table():
    found = tables(parts(evidence.trace()))
    assert set(found) >= {"layers", "operators", "kernels", "collectives", "copies", "queues"}
    assert column(found["copies"], "host memory") == ["pageable"]
    assert column(found["copies"], "time") == [10 * US]
    assert column(found["collectives"], "time") == [60 * US]
    assert column(found["collectives"], "exposed") == [30 * US]
    assert column(found["synchronisations"], "call") == ["cudaStreamSynchronize"]
    categories = found["categories"]
    times = dict(zip(column(categories, "category"), column(categories, "time"), strict=True))
    assert times == {"matrix product": 70 * US, "communication": 60 * US, "copy": 10 * US}
    assert found["copies"]["nodes"] == []  # its rows are of no node
    assert found["layers"]["nodes"]


def test_the_kinds_of_links_add_up_to_the_critical_path():
    found = parts(evidence.trace())["path"]
    assert sum(time for _, time in found["parts"]) == pytest.approx(found["length"], abs=5)
    assert found["length"] > 0
    assert sum(column(found["table"], "time")) == pytest.approx(found["length"], abs=5)


def test_the_course_of_memory_is_that_of_the_device_that_held_most():
    def used(device, *points):
        return MemoryUse(
            device=device, before=0, peak=max(point[1] for point in points), peak_at=0.0, after=0,
            reserved=None if device is None else 64, allocations=1, allocated=1, timeline=points,
        )  # fmt: skip

    rank = evidence.trace().ranks[0]
    host, gpu = used(None, (0.0, 8, None), (1e-3, 9, None)), used(3, (1e-6, 16, 64), (2e-6, 48, 64))
    course = page_trace.memory_timeline(msgspec.structs.replace(rank, memory=(host, gpu)))
    assert (course["x"], course["alive"], course["reserved"]) == ([1000, 2000], [16, 48], [64, 64])
    assert "GPU 3: at most 48 B" in course["summary"]
    alone = page_trace.memory_timeline(msgspec.structs.replace(rank, memory=(host,)))
    assert (alone["reserved"], alone["peak"]) == (None, 9)
    assert page_trace.memory_timeline(msgspec.structs.replace(rank, memory=())) is None


def test_what_was_not_recorded_is_named():
    assert any("memory" in said for said in parts(evidence.trace())["unrecorded"])


def test_a_trace_of_the_host_alone_has_no_time_of_devices():
    rank = evidence.rank(*evidence.parts()[:3])
    found = parts(Trace(name="host.json", ranks=(rank,)))
    assert {"devices", "ranks"}.isdisjoint(found)
    assert {"overview", "tree", "tables"} <= set(found)
    assert {one["label"] for one in found["overview"]["figures"]} <= {"window", "FLOPs"}


def test_ranks_stand_beside_each_other_with_the_straggler_first(job):
    found = data(render(job))
    rows = found["parts"]["ranks"]["rows"]
    assert [row["name"] for row in rows] == ["0", "1", "2"]
    assert [row["note"] for row in rows] == ["", "straggler", ""]
    assert [row["option"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["whole"] == pytest.approx(sum(row["amounts"]), abs=10)
    waits = [row["more"][0] for row in rows]
    assert waits == ["4.00 ms", "0 s", "4.00 ms"]  # 8 calls, 500 µs each
    said = " ".join(found["parts"]["ranks"]["said"])
    assert "No file of rank 3." in said
    assert "8 collectives matched" in said
    choice = found["choice"]
    assert (choice["label"], choice["first"]) == ("Rank", 1)
    assert [one["name"] for one in choice["options"]] == ["0", "1", "2"]
    for one in choice["options"]:
        assert {"overview", "devices", "tree", "tables"} <= set(one["parts"])


def test_a_slow_collective_stands_with_what_is_usual(job):
    call = SlowCall(name="allreduce", bytes=64, number=3, time=0.5, transfer=0.02, usual=0.001)
    found = msgspec.structs.replace(job, job=msgspec.structs.replace(job.job, slow=(call,)))
    slow = data(render(found))["parts"]["ranks"]["slow"]
    assert [column(slow, title) for title in ("transfer", "usual", "call")] == [
        [20_000 * US], [1_000 * US], [3],
    ]  # fmt: skip
    assert data(render(job))["parts"]["ranks"]["slow"] is None


def drawn_job(*, begins, skews):
    """Ranks that begin at these ns by their own clocks, which are so many seconds ahead."""
    rank = evidence.rank()
    tree = msgspec.structs.replace(rank.tree, timeline=timelines.synthetic(10))
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            rank=number,
            world=len(begins),
            tree=tree,
            contents=msgspec.structs.replace(rank.contents, begin=begin),
        )
        for number, begin in enumerate(begins)
    )
    waits = tuple(
        RankWait(rank=number, waits=0.0, waited_for=0.0, skew=skew)
        for number, skew in enumerate(skews)
    )
    return Trace(name="job", ranks=ranks, job=Job(calls=3, waits=waits, straggler=1, lost=0.1))


def test_ranks_are_drawn_on_the_clock_that_their_collectives_give():
    trace = drawn_job(begins=[10**18, 10**18 + 9_000, 10**18 + 500], skews=[1e-6, 4e-6, -2e-6])
    found = data(render(trace))["parts"]["job"]
    # By the common clock they begin at −1,000, 5,000 and 2,500 ns.
    assert [rank["begin"] for rank in found["ranks"]] == [0, 6_000, 3_500]
    assert [rank["option"] for rank in found["ranks"]] == [0, 1, 2]
    assert "On one clock" in found["note"]


def test_a_rank_without_collectives_is_said_to_have_its_own_clock():
    found = data(render(drawn_job(begins=[0, 70, 30], skews=[1e-8, 0.0])))["parts"]["job"]
    assert [rank["begin"] for rank in found["ranks"]] == [0, 80, 40]
    assert "Rank 2: by its own clock." in found["note"]
    alone = data(render(drawn_job(begins=[0, 70], skews=[])))["parts"]["job"]
    assert "which no collective compares" in alone["note"]


def test_ranks_that_do_not_say_when_they_begin_are_not_drawn_on_one_clock():
    assert "job" not in data(render(drawn_job(begins=[None, None], skews=[0.0, 0.0])))["parts"]
    one = drawn_job(begins=[5, None], skews=[0.0, 0.0])
    assert "job" not in data(render(one))["parts"]


def test_one_rank_is_no_choice():
    found = data(render(evidence.trace()))
    assert "choice" not in found
    assert "ranks" not in found["parts"]


def many(ranks, nodes):
    """Ranks of one trace with a tree of so many nodes, as models of many layers have."""
    tree = pages.chain(nodes).tree
    one = msgspec.structs.replace(evidence.rank(), tree=tree)
    found = [msgspec.structs.replace(one, rank=at, world=ranks) for at in range(ranks)]
    return Trace(name="job", ranks=tuple(found))


@pytest.mark.slow
def test_a_page_of_many_ranks_and_deep_trees_stays_small():
    text = render(many(64, 2_000))
    assert len(text) < 12_000_000
    found = data(text)["choice"]
    assert len(found["options"]) == 64
    for one in found["options"]:
        tree = one["parts"]["tree"]
        assert len(tree["columns"]["parent"]) <= page_trace.NODES // 64
        assert "of 2,000 nodes" in tree["note"]
    part = found["options"][0]["parts"]
    assert parts(many(1, 2_000))["tree"]["note"] == ""
    assert sum(filter(None, part["tree"]["columns"]["host"])) == sum(
        one.host or 0 for one in many(1, 2_000).ranks[0].tree.rows
    )
    layers = tables(part)["layers"]
    assert layers["left"] > 0
    assert max(layers["nodes"]) < len(part["tree"]["columns"]["parent"])


def test_of_very_many_ranks_some_have_details_and_all_have_bars():
    trace = many(100, 10)
    job = Job(calls=1, waits=(), straggler=90, lost=0.001)
    found = data(render(msgspec.structs.replace(trace, job=job)))
    rows = found["parts"]["ranks"]["rows"]
    assert len(rows) == 100
    assert len(found["choice"]["options"]) == page_trace.MAX_DETAILED == 64
    assert found["choice"]["options"][found["choice"]["first"]]["name"] == "90"
    assert rows[90]["option"] == found["choice"]["first"]
    assert rows[80]["option"] is None
    assert "Details cover 64 of 100 ranks." in found["parts"]["ranks"]["said"]


def test_of_two_traces_the_contributions_add_up_to_the_change():
    found = parts(evidence.diff())
    window, *tables = found["contributions"]
    assert window["total"] == 30 * US
    assert sum(amount for _, amount, _ in window["bars"]) + window["rest"] == window["total"]
    for one in tables:
        total = sum(amount for _, amount, _ in one["bars"]) + one["rest"]
        assert total == pytest.approx(one["total"], abs=len(one["bars"]) + 1)
    kernels = next(one for one in found["tables"] if one["name"] == "kernels")
    assert column(kernels, "what")[0] == "slower"
    assert column(kernels, "adds")[0] == 30 * US
    assert "notices" not in found["overview"] or found["overview"]["notices"] == []


def test_other_hardware_is_said_before_any_figure():
    around = (
        Difference(part="machine", name="device", baseline="A100", current="V100"),
        Difference(part="software", name="torch", baseline="2.1", current="2.2"),
        Difference(part="settings", name="shapes", baseline="yes", current="no", timing=False),
    )
    found = parts(msgspec.structs.replace(evidence.diff(), differences=around))["overview"]
    (notice,) = found["notices"]
    assert "machine: device, software: torch" in notice
    assert ["machine: device", "A100 → V100", ""] in found["facts"]
    assert ["settings: shapes", "yes → no", ""] in found["facts"]
    figures = {one["label"]: one for one in found["figures"]}
    assert figures["window"]["value"] == "180.0 µs"
    assert "was 150.0 µs" in figures["window"]["note"]


@pytest.mark.thorough
def test_the_card_of_flops_says_those_that_the_mfu_is_of():
    record = tg.read_trace(public_trace("h100_qwen_0.5b"), progress=False)
    figures = {one["label"]: one for one in parts(record)["overview"]["figures"]}
    model_flops = units.count(record.ranks[0].utilization.model_flops)
    assert f"model FLOPs at least {model_flops}, attention whole" in figures["FLOPs"]["note"]
