"""`torchgauge trace --to` as a user types it."""

import gzip
import io
import json
import os
import sys

import pandas as pd
import pytest
from tests.support.paths import DATA
from tests.support.span_parts import TEXT

from torchgauge.cli.main import main


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(TEXT)
    return str(path)


def test_text_goes_to_standard_output(source, capsys):
    assert main(["trace", source, "--to", "folded", "--layer", "Linear_1"]) == 0
    out = capsys.readouterr().out
    assert sum(int(line.rpartition(" ")[2]) for line in out.splitlines()) == 15_000
    assert main(["trace", source, "--to", "speedscope"]) == 0
    assert len(json.loads(capsys.readouterr().out)["profiles"]) == 3
    assert main(["trace", source, "--to", "chrome", "--step", "4"]) == 0
    kept = json.loads(capsys.readouterr().out)["traceEvents"]
    assert next(one["name"] for one in kept if one["ph"] == "X") == "ProfilerStep#4"


def test_times_have_a_unit(source, capsys):
    command = ["trace", source, "--to", "folded"]
    assert main([*command, "--from", "47us", "--until", "0.00005s"]) == 0
    assert capsys.readouterr().out.endswith("gemm 6000\n")
    assert main([*command, "--from", "47"]) == 2
    assert "'47' is not a time (such as 47ms)" in capsys.readouterr().err


def test_a_file_is_written_packed_by_its_name(source, capsys, tmp_path):
    out = tmp_path / "new" / "part.json.gz"
    assert main(["trace", source, "--to", "chrome", "--output", str(out)]) == 0
    assert capsys.readouterr().err == f"Wrote {out}\n"
    assert json.loads(gzip.decompress(out.read_bytes())) == json.loads(TEXT)
    assert main(["trace", str(out), "--rank", "3"]) == 2


def test_parquet_goes_to_a_pipe_and_not_to_a_terminal(source, capsys, monkeypatch, tmp_path):
    out = tmp_path / "t.parquet"
    with out.open("wb") as file:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file))
        assert main(["trace", source, "--to", "parquet"]) == 0
        monkeypatch.undo()
    assert pd.read_parquet(out).name.notna().sum() == 21
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["trace", source, "--to", "parquet"]) == 2
    assert "[output-binary]" in capsys.readouterr().err
    assert main(["trace", source, "--to", "parquet", "--output", str(out)]) == 0


def test_a_reader_that_leaves_is_no_failure(source, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert main(["trace", source, "--to", "chrome"]) == 0


@pytest.mark.thorough
def test_a_rank_of_a_folder(source, capsys, tmp_path):
    for rank in range(2):
        whole = json.loads(TEXT) | {"distributedInfo": {"rank": rank}, "traceName": str(rank)}
        (tmp_path / "job").mkdir(exist_ok=True)
        (tmp_path / "job" / f"{rank}.json").write_text(json.dumps(whole))
    command = ["trace", str(tmp_path / "job"), "--to"]
    assert main(["trace", source, "--to", "folded", "--rank", "1"]) == 2
    assert "no trace of rank 1 in trace.json" in capsys.readouterr().err
    assert main([*command, "chrome", "--rank", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["traceName"] == "1"
    assert main([*command, "chrome"]) == 0
    assert json.loads(capsys.readouterr().out)["mergedRanks"] == [0, 1]
    assert main([*command, "folded", "--rank", "2"]) == 2
    assert "There are those of 0, 1." in capsys.readouterr().err
    assert main([*command, "folded"]) == 0
    assert capsys.readouterr().out.startswith("rank 0;")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--layer", "Linear_0"], "Add --to speedscope"),
        (["--output", "x"], "--output belongs to a conversion"),
        (["--to", "folded", "--output-dir", "x"], "--output-dir writes what was read"),
        (["--to", "chrome", "--partial"], "Leave out --partial"),
        (["--to", "chrome", "--step", "9"], "It marks 3, 4."),
        (["--to", "chrome", "--from", "1s"], "[part-empty]"),
    ],
)
def test_what_does_not_go_together_is_said(source, capsys, options, says):
    assert main(["trace", source, *options]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert not captured.out


def test_json_or_a_conversion(source, capsys):
    assert main(["trace", source, "--to", "folded", "--json"]) == 2


def test_what_is_wrong_with_the_file_is_said(source, capsys, tmp_path):
    assert main(["trace", str(tmp_path / "none.json"), "--to", "folded"]) == 2
    assert "[file-missing]" in capsys.readouterr().err
    cut = tmp_path / "cut.json"
    cut.write_text(TEXT[:1200])
    assert main(["trace", str(cut), "--to", "folded"]) == 2
    assert "[trace-truncated]" in capsys.readouterr().err
    assert main(["trace", str(cut), "--to", "folded", "--partial"]) == 0
    assert main(["trace", source, "--to", "folded", "--cache"]) == 0
    assert (tmp_path / "trace.json.torchgauge.parquet").exists()


def test_a_trace_of_jax_is_converted_and_its_events_are_not_copied(capsys, tmp_path):
    source = str(DATA / "jax_cpu.trace.json.gz")
    for form in ("folded", "speedscope", "parquet"):
        out = tmp_path / form
        assert main(["trace", source, "--to", form, "--output", str(out)]) == 0
        assert out.stat().st_size
    capsys.readouterr()
    assert main(["trace", source, "--to", "chrome"]) == 2
    err = capsys.readouterr().err
    assert "option-conflict" in err
    assert "JAX" in err
