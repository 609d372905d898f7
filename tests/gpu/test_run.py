"""The command of `make gpu`: rows in processes of their own, results as they come."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from tests.support.paths import BENCHMARKS, ROOT

import gpu
from gpu_rows import results
from gpu_rows.every import ROWS, Row
from gpu_rows.line import Line, judged
from gpu_rows.machine import Machine
from torchgauge.targets.inputs.inputs import Inputs

SCRIPT = str(BENCHMARKS / "gpu.py")
ROW = Row("a row", "what it shows", "module")
WRITES = """
import sys; sys.path.insert(0, {folder!r})
from pathlib import Path
from gpu_rows import results
from gpu_rows.line import Line
results.append(Path({out!r}) / "results.jsonl", Line("first", "1", row="a row"))
"""


def ended(monkeypatch, tmp_path, program, writes=WRITES, **patched):
    """Return the lines of a row whose process runs `program` after it wrote a line."""
    text = writes.format(folder=str(BENCHMARKS), out=str(tmp_path)) + program
    monkeypatch.setattr(gpu, "command_of", lambda row, options: [sys.executable, "-c", text])
    for name, value in patched.items():
        monkeypatch.setattr(gpu, name, value)
    return gpu.lines_of(ROW, argparse.Namespace(out=tmp_path), 600)


def test_a_row_that_fails_keeps_what_it_wrote(monkeypatch, tmp_path):
    first, failed = ended(monkeypatch, tmp_path, "raise SystemExit('no such operator')")
    assert (first.row, first.of, first.verdict) == ("a row", "first", "measured")
    assert (failed.row, failed.of, failed.verdict) == ("a row", "what it shows", "failed")
    assert failed.note == "exit code 1: no such operator"


def test_the_error_is_named_of_a_process_that_wrote_more_after_it(monkeypatch, tmp_path):
    program = "raise TypeError('no trace_only\\n\\nInvoked with: kwargs')"
    *_, failed = ended(monkeypatch, tmp_path, program)
    assert failed.note == "exit code 1: TypeError: no trace_only"


def test_a_row_that_takes_too_long_keeps_what_it_wrote(monkeypatch, tmp_path):
    def waited(process, limit):
        process.wait()

    first, late = ended(monkeypatch, tmp_path, "", waited_for=waited)
    assert (first.of, late.verdict, late.note) == ("first", "timed out", "after 600 s")


def test_a_row_that_is_well_says_what_it_wrote_alone(monkeypatch, tmp_path):
    results.append(tmp_path / gpu.RESULTS, Line("of a row before"))
    assert [line.of for line in ended(monkeypatch, tmp_path, "")] == ["first"]


def test_a_row_that_says_nothing_has_failed(monkeypatch, tmp_path):
    (line,) = ended(monkeypatch, tmp_path, "", writes="")
    assert (line.verdict, line.note) == ("failed", "exit code 0: nothing was written")
    assert results.read(tmp_path / gpu.RESULTS) == [line]


def test_of_a_killed_run_the_lines_of_its_last_row_are_there(tmp_path):
    """The row's process writes them; its parent is killed before the row ends."""
    text = WRITES.format(folder=str(BENCHMARKS), out=str(tmp_path))
    row = [sys.executable, "-c", f"{text}import time; print(1); time.sleep(1000)"]
    program = f"""
import sys; sys.path.insert(0, {str(BENCHMARKS)!r})
import argparse, gpu, pathlib
gpu.command_of = lambda *_: {row!r}
out = pathlib.Path({str(tmp_path)!r})
gpu.lines_of(gpu.Row("a row", "", ""), argparse.Namespace(out=out), 600)
"""
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as run:
        while not results.read(tmp_path / gpu.RESULTS):
            assert run.poll() is None
            time.sleep(0.01)
        # The row is in its session, in a group of its own.
        (child,) = psutil.Process(run.pid).children()
        run.kill()
    child.kill()
    assert [line.of for line in results.read(tmp_path / gpu.RESULTS)] == ["first"]


def test_a_process_that_hangs_is_ended_with_what_it_started(tmp_path):
    # The shell's child holds the pipe: it is closed when both are gone.
    with subprocess.Popen(
        ["sh", "-c", "sleep 1000 & wait"], process_group=0, stdout=subprocess.PIPE
    ) as process:
        assert gpu.waited_for(process, 0.01) is None
        assert process.returncode is not None
        assert process.stdout.read() == b""


def test_lines_come_back_and_a_cut_one_is_left_out(tmp_path):
    path = tmp_path / "results.jsonl"
    line = judged("a", "1", "2", goal="equal", met=False, ours=1.0)
    results.append(path, line)
    with path.open("a") as file:
        file.write('{"of": "b", "ou')
    assert results.read(path) == [line]
    results.append(path, line)
    assert results.read(path) == [line, line]
    assert results.read(tmp_path / "none") == []


def test_of_several_runs_each_row_is_the_last_ones():
    names = [row.name for row in ROWS[:3]]
    old = [Line(name, "old", row=name) for name in names]
    new = [Line(names[1], "new", row=names[1]), Line("more", "new", row=names[1])]
    merged = results.latest([old, new])
    assert [(line.row, line.ours) for line in merged] == [
        (names[0], "old"),
        (names[1], "new"),
        (names[1], "new"),
        (names[2], "old"),
    ]


def test_the_page_has_a_line_for_every_row(tmp_path):
    text = (ROOT / "docs" / "gpu.md").read_text()
    made = text.partition(results.BEGIN)[2].partition(results.END)[0]
    named = {row.split("|")[1].strip() for row in made.splitlines()[2:]}
    assert named == {row.name for row in ROWS}
    page = tmp_path / "page.md"
    page.write_text(f"above\n{results.BEGIN}old{results.END}below\n")
    results.put_into_page(page, results.table([Line("a|b", "1", note="why", row="r")]))
    assert page.read_text() == (
        f"above\n{results.BEGIN}"
        "| row | of | torchgauge | beside it | goal | verdict |\n|---|---|---|---|---|---|\n"
        "| r | a\\|b | 1 | — | — | measured: why |\n"
        f"{results.END}below\n"
    )


def test_rows_have_files_and_names_of_their_own():
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert (BENCHMARKS / "gpu_rows" / f"{row.module}.py").exists()
    assert [row.name for row in gpu.chosen("latency, ROOFS")] == [
        *(row.name for row in ROWS if row.name.startswith("latency")),
        "roofs",
    ]
    with pytest.raises(SystemExit, match="No row is named so"):
        gpu.chosen("nothing")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_every_row_says_so(tmp_path):
    command = [sys.executable, SCRIPT, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = results.read(tmp_path / "results.jsonl")
    assert [line.row for line in lines] == [row.name for row in ROWS]
    assert {(line.verdict, line.note) for line in lines} == {("not run", "no GPU")}
    assert (tmp_path / "results.md").read_text() == results.table(lines)
    assert "no GPU" in done.stdout


def test_a_python_without_torch_has_no_gpu(tmp_path):
    # -S: without site-packages there is no torch, and nothing else that must be installed.
    command = [sys.executable, "-S", SCRIPT, "--out", str(tmp_path), "--rows", "roofs"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    assert "not run (no GPU)" in done.stdout
    assert f"absent: {', '.join(gpu.required())}" in done.stdout
    assert {"torch", "msgspec", "rich-argparse"} <= set(gpu.required())


def test_the_arithmetic_by_hand_is_what_is_counted():
    from gpu_rows import mfu

    counted = next(mfu.lines(Machine("cpu", tiny=True)))
    assert counted.verdict == "met"


@pytest.mark.thorough
def test_a_trial_of_the_memory_row_measures_and_estimates():
    from gpu_rows import memory

    peak, allocator, estimate = memory.lines(Machine("cpu", tiny=True), "Llama 1B", "training")
    assert peak.figures["peak"] > 0
    assert (allocator.verdict, estimate.figures["peak"]) == ("not run", peak.figures["peak"])


def test_the_allocator_is_asked_of_the_third_step_alone(monkeypatch):
    from gpu_rows import memory, snapshots

    asked, model = [], torch.nn.Linear(4, 4)
    stats = {
        f"{name}.all.{when}": 0
        for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
        for when in ("peak", "current")
    }
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("empty"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: asked.append("reset"))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: asked.append("stats") or stats)
    model.register_forward_hook(lambda *_: asked.append("step"))
    placement = SimpleNamespace(model=model, inputs=Inputs.of(torch.ones(1, 4)))
    memory.by_hand(Machine("cpu"), placement, training=True)
    assert asked == ["step", "step", "empty", "reset", "step", "stats"]
    assert model.weight.grad is None

    history = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(
        torch.cuda.memory, "_record_memory_history", lambda **how: history.append(how)
    )
    with pytest.raises(ZeroDivisionError):
        snapshots.record(Path("unused"), lambda: 1 / 0)
    assert history[-1] == {"enabled": None}


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in ROWS])
def test_a_trial_of_every_row_on_a_cpu_and_with_a_fake_gpu(tmp_path, row):
    command = [sys.executable, SCRIPT, "--device", "cpu", "--tiny", "--out", str(tmp_path),
               "--row", row, "--recordings", str(tmp_path)]  # fmt: skip
    state = {"TORCHGAUGE_STATE": str(tmp_path / "state")}
    subprocess.run(command, check=True, env=os.environ | state)
    *_, last = results.read(tmp_path / gpu.RESULTS)
    assert last.verdict == "tried"
