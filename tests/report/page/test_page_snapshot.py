"""The page of memory snapshots before a browser sees it, against figures known by hand."""

import msgspec
import pytest
from tests.support import evidence
from tests.support.page_data import data, parts
from tests.support.snapshots import BASE, LOG, MIB, block, segment, whole

from torchgauge.records.snapshot import Mark
from torchgauge.report.page import page_snapshot
from torchgauge.report.page.html import render


def column(table, title):
    return next(one["values"] for one in table["columns"] if one["title"] == title)


@pytest.fixture
def found():
    """The device that holds most, which is shown first."""
    choice = data(render(evidence.snapshot()))["choice"]
    assert (choice["label"], [one["name"] for one in choice["options"]]) == ("GPU", ["0", "1"])
    assert choice["first"] == 0
    return choice["options"][0]["parts"]


def test_what_was_alive_adds_up_by_stack_and_by_category(found):
    peak, end = found["held"][:2]
    assert (peak["title"], end["title"]) == ("At the peak", "At the end")
    assert end["whole"] == 30 * MIB
    for one in (peak, end):
        assert sum(column(one["table"], "bytes")) == one["whole"]
        assert sum(size for _, size in one["categories"]) == one["whole"] or not one["categories"]
    assert column(end["table"], "allocated by")[0] == "log.py:7 keep ← train.py:10 main"
    assert column(end["table"], "share")[0] == 1
    assert dict(peak["categories"])["optimizer"] == 10 * MIB


def test_the_course_has_the_peak_and_where_memory_ran_out(found):
    course = found["course"]
    assert course["peak"] == max(course["alive"]) == 50 * MIB  # 10 of the small blocks were there
    assert course["timed"]
    (at,) = course["failed"]
    assert course["alive"][at] == 30 * MIB
    assert course["x"][at] == round(evidence.snapshot().devices[0].ooms[0].time * 1e9)
    assert len(course["x"]) == len(course["alive"])


def test_what_was_marked_is_drawn_above_the_course_and_is_in_a_table(found):
    marks = found["course"]["marks"]
    assert marks["drawn"] == [
        {"from": 0, "to": 8_000, "label": "step"},
        {"from": 0, "to": 4_000, "label": "forward"},
        {"from": 5_000, "to": 5_000, "label": "optimizer, begun"},
    ]
    table = marks["table"]
    assert column(table, "marked") == ["step", "forward", "optimizer"]
    assert column(table, "length") == [8_000, 4_000, None]
    assert "3 marks" in found["course"]["summary"]


def test_marks_of_another_device_are_not_drawn_and_without_any_there_is_no_table():
    record = evidence.snapshot()
    others = tuple(msgspec.structs.replace(one, device=1) for one in record.marks)
    elsewhere = page_snapshot.memory_timeline(
        msgspec.structs.replace(record, marks=others), record.devices[0]
    )
    assert elsewhere["marks"] is None
    assert "marks" not in elsewhere["summary"]


def test_marks_without_a_time_are_in_the_table_alone():
    record = evidence.snapshot()
    unknown = tuple(msgspec.structs.replace(one, time=None) for one in record.marks)
    marks = page_snapshot.memory_timeline(
        msgspec.structs.replace(record, marks=unknown), record.devices[0]
    )["marks"]
    assert marks["drawn"] == []
    assert marks["table"]["rows"] == len(unknown)


def test_of_many_marks_the_longest_are_kept_in_their_order():
    record = evidence.snapshot()
    many = [
        Mark(name=f"{at}", stage=stage, device=0, time=at + (stage == "END") * at / 1e6)
        for at in range(2_500)
        for stage in ("START", "END")
    ]
    marks = page_snapshot.memory_timeline(
        msgspec.structs.replace(record, marks=tuple(many)), record.devices[0]
    )["marks"]
    assert (marks["table"]["rows"], marks["table"]["left"]) == (2_000, 500)
    assert [one["label"] for one in marks["drawn"]] == [f"{at}" for at in range(500, 2_500)]


def test_an_oom_says_what_was_asked_for_against_what_was_free(found):
    (last,) = found["ooms"]["last"]
    assert dict(last["bars"]) == {
        "asked for": 15 * MIB,
        "the device had left": 2 * MIB,
        "free in segments, all pieces": 20 * MIB,
        "the largest piece": 10 * MIB,
        "the largest of its stream and pool": 10 * MIB,
    }
    assert "fragmentation" in last["title"]
    links = {one["title"]: one["view"] for one in found["overview"]["findings"]}
    assert next(view for title, view in links.items() if "Out of memory" in title) == "ooms"


def test_segments_are_drawn_with_their_blocks_where_they_lie(found):
    layout = found["layout"]
    assert layout["reserved"] == sum(size for _, size in layout["parts"]) == 50 * MIB
    assert [one["runs"] for one in layout["map"]] == [
        [-10 * MIB, 10 * MIB, -10 * MIB, 10 * MIB],
        [10 * MIB],
    ]
    rows = {label: value for label, value, _ in layout["rows"]}
    assert (rows["split"], rows["largest piece"]) == ("20.97 MB", "10.49 MB")
    assert column(layout["table"], "in use") == [0.5, 1]


def test_what_is_too_thin_to_be_seen_joins_its_neighbour():
    drawn = page_snapshot._drawn
    assert drawn([100, -1, 50, -100, 2, -8], 10) == [151, -110]
    assert sum(map(abs, drawn([3, -900, 4, -5, 600], 50))) == 3 + 900 + 4 + 5 + 600


def test_a_record_without_blocks_is_drawn_by_its_sums():
    record = evidence.snapshot()
    first, *others = record.devices[0].segments
    first = msgspec.structs.replace(first, runs=())
    device = msgspec.structs.replace(record.devices[0], segments=(first, *others))
    tile = page_snapshot.layout(device)["map"][0]
    assert tile["runs"] == [20 * MIB, -20 * MIB]


def test_many_segments_and_stacks_are_cut_and_the_rest_is_said():
    blocks = [
        block(BASE + at * MIB, MIB - at, stack=[{**LOG[0], "line": at + 1}]) for at in range(3_000)
    ]
    record = evidence.told(whole([segment(one["address"], one) for one in blocks]))
    found = parts(record)
    layout = found["layout"]
    assert len(layout["map"]) == page_snapshot.MAX_TILES
    left, size = layout["left"]
    assert left == 3_000 - page_snapshot.MAX_TILES
    assert size + sum(one["size"] for one in layout["map"]) == record.devices[0].reserved
    table = found["held"][0]["table"]
    assert (table["rows"], table["left"]) == (page_snapshot.MAX_ROWS, 1_000)


def test_a_snapshot_without_devices_or_history_still_has_a_page():
    state = parts(evidence.told(whole([segment(BASE, block(BASE, MIB, stack=[]))])))
    assert {"course", "ooms"}.isdisjoint(state)
    assert {"overview", "held", "layout"} <= set(state)
    empty = msgspec.structs.replace(evidence.snapshot(), devices=(), findings=())
    assert set(parts(empty)) == {"overview"}


def test_growth_adds_up_by_stack():
    found = parts(evidence.growth())
    (chart,) = found["contributions"]
    assert chart["total"] == 7 * MIB == sum(size for _, size, _ in chart["bars"]) + chart["rest"]
    assert chart["unit"] == "growth"
    (table,) = found["tables"]
    assert column(table, "growth") == [7 * MIB]
    assert column(table, "blocks now")[0] - column(table, "blocks before")[0] == 7
    assert "+7.34 MB by log.py:7 keep" in found["overview"]["findings"][0]["title"]
    same = parts(evidence.grown(evidence.snapshot(3), evidence.snapshot(3)))
    assert set(same) == {"overview"}
    assert same["overview"]["figures"][0]["note"] == "as before"
