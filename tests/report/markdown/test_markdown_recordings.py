"""Traces, snapshots and two of them side by side, as a reader of CommonMark sees them."""

import msgspec
import pytest
from tests.support import evidence
from tests.support.exported_records import ODD
from tests.support.markdown_reader import PLAIN, tables, without_markup

from torchgauge.report.markdown.markdown_blocks import MAX_BYTES

MAKES = [evidence.trace, evidence.diff, evidence.snapshot, evidence.growth]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return evidence.job(tmp_path_factory.mktemp("job"))


def table(text, *head):
    """Return the rows below the header that begins so."""
    (found,) = [one for one in tables(text) if tuple(one[0][: len(head)]) == head]
    return found[1:]


def test_a_trace_says_what_stands_out_and_where_time_went():
    text = evidence.trace().to_markdown()
    assert text.startswith("### `made.json`, recorded")
    (device, *streams) = table(text, "", "window", "compute")
    assert device == ["GPU 0", "150 µs", "47 %", "20 %", "6.7 %", "27 %", "–", "27 %", "–"]
    assert [row[0] for row in streams] == ["stream 7", "stream 8", "stream 9"]
    path = table(text, "", "time", "share")
    assert "host" in {row[0] for row in path}
    (copies,) = table(text, "", "host memory")
    assert copies[:4] == ["host to device", "pageable", "1", "10.0 µs"]
    kernels = table(text, "kernel", "calls", "time")
    assert [row[0] for row in kernels[:2]] == ["ncclDevKernel_AllReduce_Sum", "gemm"]
    assert kernels[1][2] == "50.0 µs"
    layers = {row[0]: row[3] for row in table(text, "layer", "calls", "time", "self")}
    assert layers["Head_0"] == "80.0 µs"  # all but the communication
    assert "**Not recorded**" in text
    assert "no-layer-paths" in text.split("**Warnings**")[1]
    assert "█" not in text


def test_of_ranks_the_straggler_stands_out_and_has_its_details(job):
    text = job.to_markdown()
    ranks = table(text, "rank", "window")
    assert [row[0] for row in ranks] == ["0", "1", "2"]
    assert "| **1** |" in text
    assert ranks[1][-2:] == ["0 s", "4.00 ms"]
    assert "#### Rank 1 (`rank1.json`)" in text
    assert "Rank 1 comes last" in text


def test_two_traces_add_up():
    text = evidence.diff().to_markdown()
    assert "baseline: `before.json`" in text
    _, *parts, window = tables(text)[0]
    assert window[0] == "window"
    assert window[3] == "+30.0 µs"
    changed = {row[0]: row[3] for row in parts if row[3] != "0 s"}
    assert changed == {"compute": "+30.0 µs"}
    assert "all others 0 s, together +30.0 µs" in text


def test_a_snapshot_says_how_memory_is_filled_and_who_holds_it():
    text = evidence.snapshot().to_markdown()
    first, second = (tables(part) for part in text.split("#### GPU ")[1:])
    assert first[0][1] == ["reserved", "52.43 MB", "2 segments"]
    assert second[0][1] == ["reserved", "3.146 MB", "1 segment"]
    assert first[0][4] == ["split", "20.97 MB", "40 %, between blocks"]
    peak, failed, end = first[3:]
    stack = "log.py:7 keep ← train.py:10 main"
    assert peak[1] == [stack, "31.5 MB", "60 %", "12"]
    assert failed[1] == [stack, "15.7 MB", "2.10 MB", "21.0 MB", "10.5 MB", "fragmentation"]
    assert end[1][0] == stack
    assert "Out of memory at 15.73 MB" in text


def test_what_grew_is_said_by_stack():
    text = evidence.growth().to_markdown()
    figures, stacks = tables(text)
    assert figures[1] == ["held", "34.60 MB", "+7.34 MB from 27.26 MB"]
    assert stacks[1] == ["log.py:7 keep ← train.py:10 main", "+7.34 MB", "31.5 MB", "+7", "12"]
    same = evidence.grown(evidence.snapshot(3), evidence.snapshot(3))
    assert "No stack holds more or less than before." in same.to_markdown()


@pytest.mark.parametrize("make", MAKES, ids=lambda one: one.__name__)
def test_no_name_is_markup(make):
    text = evidence.renamed(make(), (ODD,)).to_markdown()
    names = {one.content for one in without_markup(text) if one.type == "code_inline"}
    assert any(name.replace("\\|", "|") in PLAIN for name in names)
    for found in tables(text):
        assert {len(row) for row in found} == {len(found[0])}


@pytest.mark.parametrize("make", MAKES, ids=lambda one: one.__name__)
def test_it_fits_a_comment_whatever_the_names_are(make):
    text = evidence.renamed(make(), ("很长" * 3_000,)).to_markdown()
    assert len(text.encode()) < MAX_BYTES
    assert tables(text)


def test_of_many_rows_the_first_are_shown_and_the_others_counted(job):
    ranks = tuple(msgspec.structs.replace(job.ranks[0], rank=number) for number in range(40))
    text = msgspec.structs.replace(job, ranks=ranks).to_markdown()
    assert [row[0] for row in table(text, "rank")] == [f"{number}" for number in range(32)]
    assert "and 8 that are waited for no longer" in text
    alone = msgspec.structs.replace(job, ranks=ranks, job=None).to_markdown()
    assert "and 8 others" in alone
    snapshot = evidence.snapshot()
    device = snapshot.devices[0]
    held = tuple(msgspec.structs.replace(device.alive[0], bytes=at) for at in range(13))
    device = msgspec.structs.replace(device, alive=held)
    text = msgspec.structs.replace(snapshot, devices=(device,)).to_markdown()
    assert len(tables(text)[-1]) == 1 + 10
    assert text.rstrip().endswith("… 3 others")


def test_a_record_with_nothing_in_it_has_a_text():
    empty = msgspec.structs.replace(evidence.snapshot(), devices=(), findings=(), marks=())
    assert "devices: 0" in empty.to_markdown()
    bare = evidence.trace()
    rank = msgspec.structs.replace(bare.ranks[0], times=(), missing=(), critical_path=None)
    text = msgspec.structs.replace(bare, ranks=(rank,)).to_markdown()
    assert "**Not recorded**" not in text
    assert "Critical path" not in text
