"""The timeline's part of a page, before a browser sees it."""

import base64
import json

import msgspec
import pytest
from tests.support import evidence, pages, timelines
from tests.support.hostile_texts import HOSTILE
from tests.support.kineto_events import kernel, launch, op, read
from tests.support.page_data import Elements, parts

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.cli.main import main
from torchgauge.records.codec import load
from torchgauge.records.trace.trace import MemoryUse, Trace
from torchgauge.report.page.html import render


def with_timeline(timeline):
    return pages.with_tree(tree=msgspec.structs.replace(pages.tree(), timeline=timeline))


def test_a_page_has_the_packed_columns_as_they_are():
    timeline = timelines.synthetic(500)
    part = parts(with_timeline(timeline))["timeline"]
    assert base64.b64decode(part["columns"]) == timeline.columns
    assert part["sizes"] == list(timeline.sizes)
    assert [lane["rows"] for lane in part["lanes"]] == [list(lane.rows) for lane in timeline.lanes]
    labels = dict(part["labels"])
    kernels = [at for at, kind in enumerate(part["kinds"]) if kind == "compute"]
    assert sorted(labels) == kernels
    assert all(label.startswith("kernel_") for label in labels.values())


def test_a_profile_without_one_has_no_such_view():
    assert "timeline" not in parts(pages.with_tree())


def test_a_saved_trace_says_what_a_timeline_needs():
    assert "torchgauge trace FILE" in parts(evidence.trace())["timeline"]["missing"]


def test_what_allocators_held_is_on_the_same_axis():
    record = evidence.trace()
    (rank,) = record.ranks
    used = MemoryUse(
        device=0, before=0, peak=300, peak_at=2e-6, after=100, reserved=None, allocations=2,
        allocated=300, timeline=((1e-6, 100, None), (2e-6, 300, None)),
    )  # fmt: skip
    tree = msgspec.structs.replace(rank.tree, timeline=timelines.synthetic(100))
    rank = msgspec.structs.replace(rank, tree=tree, memory=(used,))
    (counter,) = parts(msgspec.structs.replace(record, ranks=(rank,)))["timeline"]["counters"]
    assert counter == {
        "name": "Tensors of GPU 0", "unit": "bytes", "time": [1000, 2000], "values": [100, 300],
    }  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_names_of_strangers_stay_text(text):
    events = read(op(text, 0, 10), launch(1, 2, 2), kernel(text, 20, 5, 1))
    rank = rank_trace(events, "made.json", timeline_bytes=100_000)[0]
    page = render(Trace(name="t", ranks=(rank,)))
    tags = [tag for tag, _ in Elements(page).found]
    assert tags.count("script") == 2
    assert "svg" not in tags
    assert "img" not in tags
    assert not {"\u202e", "\u2066", "\u2028"} & set(page)


def test_the_command_writes_it_where_it_writes_a_page(tmp_path, capsys):
    file, page = tmp_path / "t.json", tmp_path / "t.html"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    assert main(["trace", str(file), "--output-dir", str(tmp_path)]) == 0
    assert load(tmp_path / "trace.json").ranks[0].tree.timeline is None
    assert main(["trace", str(file), "-o", str(page)]) == 0
    assert '"columns"' in page.read_text()
    capsys.readouterr()
