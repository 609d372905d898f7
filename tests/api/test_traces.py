"""Traces read from files and folders: the ranks of a job together."""

import gzip
import json
import os

import pytest
from tests.support.kineto_events import kernel, launch, op
from tests.support.paths import public_trace
from tests.support.ranks_from_one import recorded, write_ranks
from tests.support.ranks_here import read_here

import torchgauge as tg
from torchgauge import InputError
from torchgauge.traces.trace_files import files_by_rank

RANK = public_trace("a100_nccl_rank0of2")
EVENTS = [op("aten::mm", 0, 9), launch(1, 2), kernel("gemm", 10, 5, 1)]


@pytest.fixture(autouse=True)
def _no_children(monkeypatch):
    read_here(monkeypatch)


def write(path, events=EVENTS, **header):
    path.write_text(json.dumps({"traceEvents": events} | header))
    return path


@pytest.mark.slow
def test_of_eight_ranks_the_straggler_and_the_slow_collective_are_named(tmp_path, monkeypatch):
    monkeypatch.undo()  # in processes of their own
    factors = [1.0, 1.01, 0.99, 1.0, 1.0, 1.15, 1.02, 1.0]
    clocks = [0, 4000.0, -2500.0, 100.0, 7.0, 900.0, -40.0, 12_345.0]
    late, transfers = write_ranks(
        recorded(RANK), tmp_path, factors=factors, clocks=clocks, slow={20: 40.0}
    )
    found = tg.read_trace(tmp_path)
    assert [one.rank for one in found.ranks] == list(range(8))
    assert found.missing == ()
    assert found.job.calls == len(transfers)
    assert found.job.unmatched == 0
    assert found.job.straggler == 5
    assert found.job.lost == pytest.approx(late[5] * 1e-6, rel=0.01)
    for one, ahead in zip(found.job.waits, clocks, strict=True):
        middle = sorted(clocks)
        middle = (middle[3] + middle[4]) / 2
        assert one.skew == pytest.approx((ahead - middle) * 1e-6, abs=1e-6)
    (slow,) = found.job.slow
    assert slow.transfer == pytest.approx(transfers[20] * 1e-6, rel=0.01)
    assert slow.transfer > 10 * slow.usual
    titles = [one.title for one in found.findings]
    assert any("Rank 5 comes last" in title for title in titles)
    (exposed,) = (one for one in found.ranks[0].findings if one.id == "exposed-communication")
    assert "for other ranks" in exposed.evidence
    assert any("allreduce" in title and "took" in title for title in titles)
    last = found.ranks[5]
    assert sum(one.wait for one in last.collectives) < 0.02 * sum(
        one.wait for one in found.ranks[0].collectives
    )


@pytest.mark.thorough
def test_of_equal_ranks_none_is_named(tmp_path):
    write_ranks(recorded(RANK), tmp_path, factors=[1.0] * 3, clocks=[0, 5000.0, 9.0], slow={})
    found = tg.read_trace(tmp_path, workers=1)
    assert found.job.straggler is None
    assert found.job.slow == ()
    assert found.findings == ()


def test_a_link_that_leads_nowhere_is_a_rank_that_cannot_be_read(tmp_path):
    write(tmp_path / "rank0.json", distributedInfo={"rank": 0, "world_size": 2})
    (tmp_path / "rank1.json").symlink_to(tmp_path / "moved")
    found = tg.read_trace(tmp_path)
    assert [one.rank for one in found.ranks] == [0]
    (failed,) = found.warnings
    assert (failed.id, failed.failed) == ("file-missing", True)


def test_a_file_is_read_here(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fork", None, raising=False)
    found = tg.read_trace(write(tmp_path / "one.json"))
    assert found.name == "one.json"
    assert found.job is None
    (rank,) = found.ranks
    assert rank.file == "one.json"
    assert rank.contents.device_work == 1


def test_ranks_are_known_by_the_file_else_by_its_name_else_by_its_place(tmp_path):
    write(tmp_path / "a.json", distributedInfo={"rank": 7, "world_size": 9})
    write(tmp_path / "b_rank3.json")
    write(tmp_path / "c.json")
    found = tg.read_trace(tmp_path)
    assert [one.rank for one in found.ranks] == [2, 3, 7]
    assert found.missing == (0, 1, 4, 5, 6, 8)
    assert [one.id for one in found.findings] == ["ranks-missing"]


def test_a_folder_of_vllm_has_its_ranks_and_no_front_end(tmp_path):
    for number in range(2):
        name = f"9f2c1-rank-{number}.1732.pt.trace.json.gz"
        text = {"distributedInfo": {"rank": number, "world_size": 2}, "traceEvents": EVENTS}
        (tmp_path / name).write_bytes(gzip.compress(json.dumps(text).encode()))
    for name in ("0host_77.async_llm", "host_77.async_llm"):  # before and after its ranks
        path = tmp_path / f"{name}.1732.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS[:1]}).encode()))
    (tmp_path / "profiler_out_0.txt").write_text("a table")
    found = tg.read_trace(tmp_path)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert all("-rank-" in one.file for one in found.ranks)
    assert [one.id for one in found.warnings] == ["trace-no-rank"] * 2
    assert "0host_77" in found.warnings[0].message
    assert list(files_by_rank(tmp_path)) == [0, 1]  # so a conversion takes the same


@pytest.mark.parametrize(
    ("rank", "world"),
    [
        (10**30, 10**12),
        ("0", []),
        pytest.param(-1, -5, marks=pytest.mark.thorough),
        pytest.param(True, 2.0, marks=pytest.mark.thorough),
    ],
)
def test_what_is_no_number_of_ranks_is_unknown(tmp_path, rank, world):
    for name in ("a.json", "rank99999999999999999999.json"):
        write(tmp_path / name, distributedInfo={"rank": rank, "world_size": world})
    found = tg.read_trace(tmp_path)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert [one.world for one in found.ranks] == [None, None]
    assert found.missing == ()
    assert list(files_by_rank(tmp_path)) == [0, 1]
    assert tg.convert_trace(tmp_path, "parquet", tmp_path / "table").exists()


def test_one_bad_file_does_not_cost_the_others(tmp_path, monkeypatch):
    monkeypatch.undo()  # in processes of their own
    write(tmp_path / "rank0.json")
    write(tmp_path / "rank1.json")
    (tmp_path / "rank2.json").write_text('{"traceEvents": [{"ph": "X", "na')
    found = tg.read_trace(tmp_path)
    assert [one.rank for one in found.ranks] == [0, 1]
    (warning,) = found.warnings
    assert warning.failed
    assert warning.id == "trace-truncated"
    assert "rank2.json" in warning.message


def test_json_of_another_kind_beside_the_ranks_is_no_failure(tmp_path):
    """And it takes no rank's place, neither when the folder is read nor when one is converted."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "args.json").write_text('{"lr": 0.1}')
    write(folder / "b.json", [op("aten::first", 0, 9)])
    write(folder / "c.json", [op("aten::second", 0, 9)])
    found = tg.read_trace(folder)
    assert [(one.rank, one.file) for one in found.ranks] == [(0, "b.json"), (1, "c.json")]
    (warning,) = found.warnings
    assert (warning.id, warning.failed) == ("trace-no-events", False)
    assert "args.json" in warning.message
    for rank, name in enumerate(("aten::first", "aten::second")):
        written = tg.convert_trace(folder, "chrome", tmp_path / "out.json", rank=rank)
        assert name in written.read_text()
    (folder / "b.json").unlink()
    (folder / "c.json").unlink()
    with pytest.raises(InputError):
        tg.read_trace(folder)


def test_two_files_of_one_rank_are_told(tmp_path):
    write(tmp_path / "a.json", distributedInfo={"rank": 0})
    write(tmp_path / "b.json", distributedInfo={"rank": 0})
    found = tg.read_trace(tmp_path)
    assert [one.file for one in found.ranks] == ["b.json"]
    assert [one.id for one in found.warnings] == ["trace-rank-twice"]
    assert "a.json" in found.warnings[0].message


def test_a_folder_without_traces_says_so(tmp_path):
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(InputError) as caught:
        tg.read_trace(tmp_path)
    assert caught.value.id == "trace-none"


def test_where_no_file_can_be_read_the_first_error_is_raised(tmp_path):
    for number in range(2):
        (tmp_path / f"rank{number}.json").write_text("no json")
    with pytest.raises(InputError) as caught:
        tg.read_trace(tmp_path)
    assert "rank0.json" in str(caught.value)


def test_packed_files_too(tmp_path):
    text = json.dumps({"traceEvents": EVENTS}).encode()
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "rank1.json").write_bytes(text)
    assert len(tg.read_trace(tmp_path).ranks) == 2


def test_two_traces_compare_however_they_are_given(tmp_path):
    files = [
        write(tmp_path / f"{name}.json", [launch(1, 8), kernel("gemm", 40, length, 1)])
        for name, length in (("old", 10), ("new", 30))
    ]
    read = [tg.read_trace(file, progress=False) for file in files]
    saved = [trace.save(tmp_path / f"saved-{trace.name}") for trace in read]
    for sides in (files, read, saved, (read[0], files[1]), (saved[0], files[1])):
        found = tg.compare(*sides)
        assert found.window == pytest.approx(20e-6)
        assert {one.kind: one.total for one in found.tables}["kernels"] == pytest.approx(20e-6)


def test_two_traces_of_one_name_are_called_by_their_paths(tmp_path):
    events = [launch(1, 8), kernel("gemm", 40, 10, 1)]
    files = []
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        files.append(write(tmp_path / folder / "trace.json", events))
    found = tg.compare(*files)
    assert (found.baseline.label, found.current.label) == (str(files[0]), str(files[1]))
