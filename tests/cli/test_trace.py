"""`torchgauge trace` as a user types it."""

import csv
import io
import json

import msgspec
import pytest
from tests.support import records
from tests.support.kineto_events import copy, launch, launched, module, op, read
from tests.support.paths import TRACES
from tests.support.ranks_here import read_here

import torchgauge as tg
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.cli.main import main
from torchgauge.records import codec
from torchgauge.records.trace.trace import Job, RankWait, Trace
from torchgauge.report.console.console import render

PARTS = [
    module("Net_0", 0, 90),
    module("Head_0", 1, 80),
    op("aten::item", 5, 60, **{"Input Dims": [[4, 4]], "Input type": ["float"]}),
    launch(1, 6, 56, name="cudaStreamSynchronize"),
    launch(2, 7),
    copy("Memcpy HtoD (Pageable -> Device)", 20, 10, 2),
    *launched("gemm", 40, 10, at=8),
    *launched("ncclDevKernel_AllReduce_Sum", 50, 40, at=9, stream=9),
]


@pytest.fixture(autouse=True)
def _no_children(monkeypatch):
    read_here(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    for rank in range(2):
        parts = [{**one, "ts": one["ts"] + 1000 * rank} for one in PARTS]
        header = {"distributedInfo": {"rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"traceEvents": parts} | header))
    return tmp_path


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_says_what_stands_out_and_fits(folder, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["trace", str(folder / "rank0.json")]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    for said in (
        "What stands out", "does nothing but communicate", "Where the time of devices went",
        "stream 9", "Critical path", "Collectives", "allreduce", "host to device", "pageable",
        "cudaStreamSynchronize (aten::item, in Head_0)", "Net_0", "Not recorded", "rank 0 of 2",
    ):  # fmt: skip
        assert said in out, said


def test_a_folder_shows_its_ranks_and_the_details_of_one(folder, capsys):
    assert main(["trace", str(folder), "--rank", "1"]) == 0
    out = capsys.readouterr().out
    assert "2 files of 2" in out
    assert "Rank 1 (rank1.json)" in out
    assert "1 collective matched, each across the ranks of its group." in out


def test_what_stands_out_in_one_of_several_ranks_says_in_which(folder, capsys):
    assert main(["trace", str(folder), "--rank", "1"]) == 0
    out = capsys.readouterr().out
    assert "Rank 1: GPU 0 does nothing but communicate" in out
    assert main(["trace", str(folder / "rank1.json")]) == 0
    assert "Rank 1: GPU 0" not in capsys.readouterr().out


def test_of_many_kinds_the_first_are_shown_and_the_others_counted(tmp_path, capsys):
    calls = [f"cuda{name}Synchronize" for name in "ABCDEFGHIJK"]
    parts = [launch(at, 10 * at, 5, name=name) for at, name in enumerate(calls, 1)]
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"traceEvents": parts}))
    assert main(["trace", str(file)]) == 0
    assert "and 3 more" in capsys.readouterr().out


def test_of_many_streams_the_busiest_are_shown(tmp_path, capsys):
    parts = [
        piece for stream in range(40)
        for piece in launched("gemm", 100 + stream, 10 + stream, at=stream, stream=stream)
    ]  # fmt: skip
    (tmp_path / "one.json").write_text(json.dumps({"traceEvents": parts}))
    assert main(["trace", str(tmp_path / "one.json")]) == 0
    lines = capsys.readouterr().out.partition("Critical path")[0].splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("    stream")] == [
        ["stream", f"{number}"] for number in range(24, 40)
    ]
    assert "    and 24 less busy" in [line.rstrip() for line in lines]


def test_of_many_ranks_those_that_others_wait_for_are_shown():
    def wait(rank):
        return RankWait(rank=rank, waits=1.0, waited_for=rank * 1e-3, skew=0.0)

    one, _ = rank_trace(read(PARTS), "one.json")
    ranks = tuple(msgspec.structs.replace(one, rank=rank) for rank in range(100))
    job = Job(calls=1, waits=tuple(map(wait, range(100))))
    out = render(Trace(name="job", ranks=ranks, job=job))
    lines = out.partition("waited for\n")[2].partition("collective")[0].splitlines()
    assert [line.split()[0] for line in lines[:32]] == [f"{number}" for number in range(68, 100)]
    assert lines[32].strip() == "and 68 that are waited for no longer"


def test_a_damaged_file_is_told_whichever_rank_is_shown(folder, capsys):
    damaged = folder / "rank0.json"
    damaged.write_text(damaged.read_text()[:-300])
    assert main(["trace", str(folder), "--rank", "1", "--partial"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Rank 0: The trace is damaged" in out


def test_json_is_the_record(folder, capsys):
    assert main(["trace", str(folder), "--json"]) == 0
    found = codec.decode(capsys.readouterr().out.encode())
    assert [one.rank for one in found.ranks] == [0, 1]
    assert found.job.calls == 1


@pytest.mark.slow
def test_tables_are_of_all_ranks_or_of_one(folder, capsys):
    def rows(*arguments):
        assert main(["trace", str(folder), *arguments]) == 0
        return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert {row["rank"] for row in rows("--csv")} == {"0", "1"}
    kernels = rows("--csv", "kernels", "--rank", "1")
    assert {row["rank"] for row in kernels} == {"1"}
    assert "gemm" in {row["name"] for row in kernels}
    figures = rows("--csv", "figures")
    assert [float(row["compute"]) for row in figures] == [pytest.approx(10e-6)] * 2
    assert [row["Name"] for row in rows("--csv", "operators")]
    categories = rows("--csv", "categories", "--rank", "0")
    assert sum(float(row["share"]) for row in categories) == pytest.approx(1)


def test_files_are_written_and_shown_again(folder, capsys, tmp_path):
    out = tmp_path / "out"
    given = ["--output-dir", str(out), "--format", "json,csv,kernels,text,markdown"]
    assert main(["trace", str(folder), *given]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "trace.csv", "trace.json", "trace.kernels.csv", "trace.md", "trace.txt",
    ]  # fmt: skip
    assert (out / "trace.md").read_text() == tg.load(out / "trace.json").to_markdown()
    first = capsys.readouterr().out
    assert main(["report", str(out / "trace.json")]) == 0
    assert capsys.readouterr().out == first


def test_a_page_is_written_of_a_trace_and_of_two(folder, capsys, tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "out"
    given = ["--output-dir", str(out), "--format", "html,json", "--html", str(page)]
    assert main(["trace", str(folder), *given]) == 0
    assert page.read_text() == (out / "trace.html").read_text()
    assert '"choice":{"label":"Rank"' in page.read_text()
    files = [str(folder / f"rank{number}.json") for number in range(2)]
    assert main(["compare", *files, "--html", str(page)]) == 0
    assert "rank0.json → rank1.json" in page.read_text()
    assert main(["report", str(out / "trace.json"), "--html", str(page)]) == 0
    assert page.read_text() == (out / "trace.html").read_text()
    capsys.readouterr()


def test_what_is_wrong_is_said(folder, capsys):
    assert main(["trace", str(folder), "--rank", "7"]) == 2
    assert "There are those of 0, 1" in capsys.readouterr().err
    assert main(["trace", str(folder / "none.json")]) == 2
    assert "[file-missing]" in capsys.readouterr().err
    cut = folder / "cut.json"
    cut.write_text((folder / "rank0.json").read_text()[:900])
    assert main(["trace", str(cut)]) == 2
    assert "[trace-truncated]" in capsys.readouterr().err
    assert main(["trace", str(cut), "--partial"]) == 0
    assert "trace-damaged" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_bad_file_among_good_ones_is_a_failure_with_a_result(folder, capsys, monkeypatch):
    monkeypatch.undo()  # in processes of their own
    (folder / "rank2.json").write_text("{")
    assert main(["trace", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "rank2.json" in "".join(out.split())  # a long path is wrapped
    assert "Rank 0 (rank0.json)" in out


def test_two_traces_are_compared_as_files_or_as_records(folder, capsys):
    slow = json.loads((folder / "rank1.json").read_text())
    for one in slow["traceEvents"]:
        if one["name"] == "gemm":
            one["dur"] *= 0.5
    (folder / "rank1.json").write_text(json.dumps(slow))
    files = [str(folder / f"rank{number}.json") for number in range(2)]
    assert main(["compare", *files]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for said in ("Two traces", "rank 1 of 2", "compute", "−5.00 µs", "Kernels", "gemm"):
        assert said in out, said
    saved = folder / "out"
    assert main(["trace", files[0], "--output-dir", str(saved)]) == 0
    capsys.readouterr()
    given = ["--json", "--output-dir", str(saved), "--format", "markdown"]
    assert main(["compare", str(saved / "trace.json"), files[1], *given]) == 0
    found = codec.decode(capsys.readouterr().out.encode())
    assert (saved / "comparison.md").read_text() == found.to_markdown()
    (kernels,) = [one for one in found.tables if one.kind == "kernels"]
    assert kernels.total == pytest.approx(-5e-6)


def test_a_trace_is_not_compared_with_a_run(folder, capsys, tmp_path):
    run = tmp_path / "run.json"
    run.write_bytes(codec.encode(records.profile()))
    assert main(["compare", str(folder / "rank0.json"), str(run)]) == 2
    assert "holds a profile, not a trace" in capsys.readouterr().err


def test_load_tells_a_trace_by_its_content(folder):
    assert tg.load(folder / "rank0.json").ranks[0].rank == 0
    assert len(tg.load(folder).ranks) == 2


def test_a_memory_limit_is_a_size_and_goes_with_no_cache(folder, capsys):
    file = str(folder / "rank0.json")
    assert main(["trace", file, "--memory-limit", "plenty"]) == 2
    assert "option-invalid" in capsys.readouterr().err
    assert main(["trace", file, "--memory-limit", "1GB", "--cache"]) == 2
    assert "cache-and-limit" in capsys.readouterr().err
    assert main(["trace", file, "--memory-limit", "1GB", "--to", "folded"]) == 2
    assert "option-conflict" in capsys.readouterr().err
    assert main(["trace", file, "--memory-limit", "1GB"]) == 0
    assert "trace-memory-limit" not in capsys.readouterr().out


def test_a_file_that_cannot_be_opened_is_told_without_a_traceback(tmp_path, capsys):
    (tmp_path / "cut.json.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(10))
    for name in ("nowhere.json", "cut.json.gz"):
        assert main(["trace", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith("torchgauge: error: ")


def test_a_table_of_ranks_says_beside_it_which_files_failed(folder, capsys):
    """Exit code 1 alone would be a riddle: no column has what is wrong."""
    (folder / "rank2.json").write_text('{"traceEvents": [{"ph": "X", "na')
    assert main(["trace", str(folder), "--csv", "figures"]) == 1
    out, err = capsys.readouterr()
    assert [row["rank"] for row in csv.DictReader(io.StringIO(out))] == ["0", "1"]
    assert "rank2.json" in err
    assert "[trace-truncated]" in err


@pytest.mark.parametrize(
    ("path", "id"),
    [
        ("/proc/self/mem", "file-not-regular"),
        ("/proc/self/environ", "file-not-regular"),
        ("/proc/kmsg", "file-not-regular"),
        ("/dev/zero", "file-not-regular"),
        ("a" * 300, "file-missing"),
        ("a\0b.json", "file-missing"),
        ("absent.json", "file-missing"),
    ],
)
def test_what_is_no_file_is_told_at_once(path, id, capsys):
    for verb in ("trace", "snapshot", "report"):
        assert main([verb, path]) == 2
        assert f"[{id}]" in capsys.readouterr().err


def test_a_part_of_one_rank_is_reported(folder, capsys):
    file = str(folder / "rank0.json")
    assert main(["trace", file, "--from", "8us", "--until", "9us"]) == 0
    out = capsys.readouterr().out
    assert "part          from 8.000 µs until 9.000 µs" in out
    assert "1 launch" in out
    assert "gemm" in out
    assert "AllReduce" not in out
    assert main(["trace", file, "--from", "1s"]) == 2
    assert "[part-empty]" in capsys.readouterr().err
    assert main(["trace", file, "--step", "3"]) == 2
    assert "[step-unknown]" in capsys.readouterr().err


def test_a_range_of_time_is_of_one_rank(folder, capsys):
    command = ["trace", str(folder), "--from", "8us"]
    assert main(command) == 2
    assert "Choose one with --rank" in capsys.readouterr().err
    assert main([*command, "--rank", "1", "--json"]) == 0
    record = codec.decode(capsys.readouterr().out.encode())
    assert [(rank.rank, rank.part) for rank in record.ranks] == [(1, "from 8.000 µs")]
    assert main([*command, "--rank", "7"]) == 2
    assert "[rank-unknown]" in capsys.readouterr().err


def test_a_capture_is_for_reports_of_replays(capsys):
    replay, capture = (str(TRACES / f"vllm_{name}.json.gz") for name in ("replay", "capture"))
    assert main(["trace", replay, "--capture", capture]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "device 206 GB" in text  # the file has no name of it
    assert "25 launches of 361 kernels and copies, 361 with" in text
    assert main(["trace", capture, "--capture", capture]) == 0
    assert "no launch of a CUDA graph" in capsys.readouterr().out
    assert main(["trace", replay, "--capture", "absent.json"]) == 2
    assert "[file-missing]" in capsys.readouterr().err
    assert main(["trace", replay, "--capture", capture, "--to", "folded"]) == 2
    assert "[option-conflict]" in capsys.readouterr().err
