"""`torchgauge run`: scripts that know nothing of it, in a process of their own."""

import csv
import json
import os
import signal
import subprocess
import sys

import pytest
from tests.support import page_data

import torchgauge as tg
from torchgauge.cli.main import main

MODEL = """\
import sys, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)
    def forward(self, x):
        return self.last(self.first(x).relu())
model = Net()
"""
INFERENCE = """
model.eval()
with torch.no_grad():
    for _ in range(int(sys.argv[1])):
        model(torch.ones(2, 8))
print("args", __name__, sys.argv, len(sys.path[0]))
"""
TRAINING = """
from beside import STEPS
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(STEPS):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


def run(folder, *arguments, program=("torchgauge", "run")):
    command = [sys.executable, "-m", *program, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.py"):
        (tmp_path / name).write_text(MODEL + text)
        (tmp_path / "beside.py").write_text("STEPS = 25\n")
        return tmp_path

    return write


@pytest.mark.slow
def test_an_inference_script_with_arguments(script):
    folder = script(INFERENCE)
    done = run(folder, "--record", 4, "--output-dir", "out", "script.py", "20", "--json", "-m")
    assert done.returncode == 0, done.stderr
    plain = subprocess.run(
        [sys.executable, "script.py", "20", "--json", "-m"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == plain.stdout
    record = tg.load(folder / "out" / "loop.json")
    assert (record.by, record.count, record.captured.recorded) == ("call", 20, 4)
    assert record.roots == ("Net",)
    assert record.tree.find("Net.last").calls == 1
    assert "4 of 4 steps" in done.stderr
    assert "Wrote out/loop.json" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["script.py"], ["-m", "script"]])
def test_a_training_script_finds_what_is_beside_it(script, arguments):
    folder = script(TRAINING)
    done = run(folder, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["by"], record["count"]) == ("optimizer", 25)


@pytest.mark.slow
def test_the_record_alone_is_on_standard_output_where_it_was_asked_for(script):
    done = run(script("print('mine')" + INFERENCE), "--json", "script.py", "9")
    assert json.loads(done.stdout)["count"] == 9
    assert "mine" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('sorry')", 1)]
)
def test_the_script_s_exit_code_is_passed_on(script, end, code):
    folder = script(INFERENCE + end)
    done = run(folder, "--output-dir", "out", "script.py", "12")
    assert done.returncode == code
    assert ("sorry" in done.stderr.splitlines()) == (code == 1)
    assert tg.load(folder / "out" / "loop.json").count == 12


@pytest.mark.slow
def test_a_script_that_fails_is_shown_as_python_would(script):
    text = """
class Failing(Net):
    def forward(self, x):
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("no") from error
Failing()(torch.ones(2, 8))
"""
    folder = script(INFERENCE + text)
    done = run(folder, "--output-dir", "out", "script.py", "12")
    plain = subprocess.run(
        [sys.executable, "script.py", "12"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, plain.returncode) == (1, 1)
    shown = done.stderr[: done.stderr.index("Loop of")].splitlines()
    # Only the frames of torch differ: with a wrapper around it, none of ours is shown.
    assert "torchgauge" not in done.stderr[: done.stderr.index("Loop of")]
    assert [line.replace(str(folder) + "/", "") for line in shown] == [
        line.replace(str(folder) + "/", "") for line in plain.stderr.splitlines()
    ]
    assert tg.load(folder / "out" / "loop.json").count == 12


@pytest.mark.thorough
def test_a_script_that_is_interrupted_leaves_what_was_measured(script):
    end = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    folder = script(INFERENCE + end)
    done = run(folder, "--output-dir", "out", "script.py", "12")
    assert done.returncode == 130
    record = tg.load(folder / "out" / "loop.json")
    assert record.interrupted
    assert record.captured.recorded == 5


@pytest.mark.slow
def test_a_script_with_its_own_profiler_keeps_it(script):
    text = """
from torch.profiler import profile
model.eval()
with profile() as other, torch.no_grad():
    for _ in range(12):
        model(torch.ones(2, 8))
print([event.count for event in other.key_averages() if event.key == "aten::addmm"])
"""
    done = run(script(text), "script.py")
    assert done.stdout == "[24]\n"
    assert done.returncode == 1
    assert "torch.profiler.profile" in done.stderr


@pytest.mark.slow
def test_a_timeline_in_the_script_is_refused(script):
    text = "\nimport torchgauge as tg\nwith tg.timeline(model): pass\n"
    done = run(script(text), "script.py")
    assert done.returncode == 1
    assert "A timeline is active already" in done.stderr


PLAIN = """\
import sys
def total(numbers):
    found = 0
    for number in numbers:
        found += number
    return found
class Owner:
    def twice(self, number):
        data = bytearray(2_000_000)
        return total([number] * 2)
print(Owner().twice(3), sys.argv, __name__)
"""


@pytest.mark.slow
def test_a_script_without_a_model_is_an_error_unless_lines_are_asked_for(tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    done = run(tmp_path, "--output-dir", "out", "plain.py", "a")
    assert (done.returncode, "[no-model]" in done.stderr) == (2, True)
    assert done.stdout == "6 ['plain.py', 'a'] __main__\n"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_lines_of_a_script_without_a_model(tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN + "sys.exit(3)")
    formats = ("--output-dir", "out", "--format", "json,lines,markdown,html")
    done = run(tmp_path, "--lines", *formats, "plain.py", "a")
    assert done.returncode == 3
    assert done.stdout == "6 ['plain.py', 'a'] __main__\n"
    record = tg.load(tmp_path / "out" / "loop.json")
    assert record.all_warnings == ()
    functions = {one.name: one for one in record.functions}
    assert set(functions) == {"<module>", "Owner.twice", "total"}
    assert {one.line: one.hits for one in functions["total"].lines} == {3: 1, 4: 3, 5: 2, 6: 1}
    assert functions["total"].allocated is None
    rows = list(csv.DictReader((tmp_path / "out" / "loop.lines.csv").open()))
    assert [row["source"] for row in rows if row["line"] == "5"] == ["found += number"]
    for text in (done.stderr, (tmp_path / "out" / "loop.md").read_text()):
        assert "Owner.twice" in text
        assert "found += number" in text
    assert "lines of functions" in (tmp_path / "out" / "loop.html").read_text()


@pytest.mark.slow
def test_functions_by_name_and_one_that_never_ran(tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    asked = ("--function", "plain.py:total", "--function", "absent")
    done = run(tmp_path, "--lines", *asked, "--json", "plain.py")
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert [one["name"] for one in record["functions"]] == ["total"]
    assert [one["id"] for one in record["warnings"]] == ["function-not-called"]
    assert "'absent'" in record["warnings"][0]["message"]


def test_bytes_by_line(tmp_path):
    pytest.importorskip("memray")
    (tmp_path / "plain.py").write_text(PLAIN)
    done = run(tmp_path, "--lines", "--memory", "--json", "plain.py")
    assert done.returncode == 0, done.stderr
    functions = {one["name"]: one for one in json.loads(done.stdout)["functions"]}
    lines = {one["line"]: one["allocated"] for one in functions["Owner.twice"]["lines"]}
    assert 2_000_000 <= lines[9] < 2_010_000
    assert functions["total"]["allocated"] < 10_000
    assert functions["<module>"]["allocated"] >= functions["Owner.twice"]["allocated"]


@pytest.mark.slow
def test_bytes_by_line_name_the_extra_they_need(tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "memray.py").write_text("raise ImportError")
    done = run(tmp_path, "--lines", "--memory", "plain.py")
    assert (done.returncode, "torchgauge-profiler[memray]" in done.stderr) == (2, True)
    assert done.stdout == ""


@pytest.mark.slow
def test_lines_beside_a_model_and_a_script_that_fails(script):
    text = INFERENCE + "def fail():\n    raise ValueError('mine')\nfail()\n"
    folder = script(text)
    done = run(folder, "--lines", "--output-dir", "out", "script.py", "12")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "torchgauge" not in done.stderr[: done.stderr.index("Loop of")]
    record = tg.load(folder / "out" / "loop.json")
    assert record.count == 12
    functions = {one.name: one for one in record.functions}
    assert functions["Net.forward"].calls == 12
    assert functions["fail"].lines[0].hits == 1
    assert "lines-slow" in {one.id for one in record.all_warnings}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--function", "f", "x.py"], "option-conflict"),
        (["--memory", "x.py"], "file-missing"),
        ([], "argument-missing"),
        (["absent.py"], "file-missing"),
        (["--warmup", "0", "x.py"], "schedule-invalid"),
        (["-m", "no_such_module"], "module-missing"),
        (["--memory-budget", "1", "x.py"], "is not a size"),
        (["--record", "some", "x.py"], "is neither a number of steps"),
    ],
)
def test_bad_arguments_are_named(tmp_path, monkeypatch, capsys, arguments, name):
    monkeypatch.chdir(tmp_path)
    code = main(["run", *arguments])
    assert (code, name in capsys.readouterr().err) == (2, True)


@pytest.mark.slow
def test_of_two_ranks_the_slow_one_is_named(script):
    text = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(200, 200)
for _ in range(25):
    for _ in range(30 * dist.get_rank()):
        x = x @ x * 0
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
    folder = script(text)
    ranks = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    done = run(folder, "torchgauge", "run", "--output-dir", "out", "script.py", program=ranks)
    assert done.returncode == 0, done.stderr
    found = tg.load(folder / "out")
    assert (found.world, found.straggler, found.missing) == (2, 1, ())
    fast, slow = found.ranks
    assert fast.waiting > slow.waiting
    assert 0 < found.exposed <= found.share < 1
    assert "Rank 1 is the straggler" in done.stderr
    assert {path.name for path in (folder / "out").iterdir()} == {
        "loop.rank0.json", "loop.rank1.json", "ranks.json",
    }  # fmt: skip
    record = tg.load(folder / "out" / "loop.rank0.json")
    buckets = [n for n in record.tree.root.children if n.name == "communication"]
    assert [node.children[0].name for node in buckets] == ["gloo:all_reduce"]


FORKS = """
import os
model.eval()
def child():
    model(torch.ones(2, 8))
    {end}
with torch.no_grad():
    for step in range(20):
        model(torch.ones(2, 8))
        if step == int(sys.argv[1]):
            {fork}
"""
FORKED = """pid = os.fork()
            if pid == 0:
                child()
                break
            print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)"""
STARTED = """import multiprocessing
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
            print("child", process.exitcode, flush=True)"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    ("fork", "end", "step"),
    [
        (FORKED, "sys.exit(3)", 6),  # while a step is recorded
        pytest.param(FORKED, "sys.exit(3)", 3, marks=pytest.mark.slow),
        pytest.param(FORKED, "sys.exit(3)", 17, marks=pytest.mark.slow),
        pytest.param(FORKED, "sys.exit('sorry')", 6, marks=pytest.mark.slow),
        (FORKED, "raise ValueError('in the child')", 6),
        pytest.param(FORKED, "raise KeyboardInterrupt", 6, marks=pytest.mark.slow),
        pytest.param(FORKED, "return", 6, marks=pytest.mark.slow),
        pytest.param(STARTED, "sys.exit(3)", 6, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_a_script_forks_is_left_alone(script, fork, end, step):
    folder = script(FORKS.format(fork=fork, end=end))
    (folder / "tmp").mkdir()
    alone = os.environ | {"TMPDIR": str(folder / "tmp")}
    plain = subprocess.run(
        [sys.executable, "script.py", str(step)], cwd=folder, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    command = [sys.executable, "-m", "torchgauge", "run", "--output-dir", "out", "script.py"]
    done = subprocess.run(
        [*command, str(step)], cwd=folder, env=alone, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), done.stderr
    assert done.stdout.startswith("child ")
    said = done.stderr[: done.stderr.index("Loop of")]
    assert said.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert "torchgauge" not in said
    assert done.stderr.count("Wrote") == 1
    record = tg.load(folder / "out" / "loop.json")
    assert (record.count, record.captured.recorded) == (20, 5)
    assert list((folder / "tmp").iterdir()) == []


# Reading takes as long as somebody who interrupts it needs.
READ_SLOWLY = """
import time
from torchgauge.measure.loop import loop_record
read = loop_record.read_events
def slowly(file):
    print("reading", flush=True)
    time.sleep(1)
    return read(file)
loop_record.read_events = slowly
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_ctrl_c_after_the_last_line_costs_no_record(script, sent):
    folder = script(READ_SLOWLY + INFERENCE)
    command = [sys.executable, "-m", "torchgauge", "run", "--output-dir", "out", "script.py", "12"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, **pipes) as run:
        while "reading" not in run.stdout.readline():
            assert run.poll() is None
        run.send_signal(getattr(signal, sent))
        _, said = run.communicate(timeout=120)
    assert run.returncode == 130, said
    assert "Traceback" not in said
    record = tg.load(folder / "out" / "loop.json")
    assert (record.interrupted, record.captured.recorded) == (True, 5)


@pytest.mark.parametrize(
    ("end", "option", "code"),
    [
        pytest.param(
            "sys.stdout = sys.stderr = None; sys.exit(3)", ("--json",), 3,
            marks=pytest.mark.thorough,
        ),
        *(
            pytest.param(end, option, 0, marks=pytest.mark.slow)
            for end in ("sys.stderr.close()", "sys.stdout.close()", "import os; os.close(2)",
                        "sys.stderr = None", "sys.stdout = sys.stderr = None")
            for option in ((), ("--json",))
        ),
    ],
)  # fmt: skip
def test_a_script_that_closes_its_streams_ends_as_it_does_alone(script, end, option, code):
    folder = script(INFERENCE + end)
    done = run(folder, "--output-dir", "out", *option, "script.py", "20")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert tg.load(folder / "out" / "loop.json").count == 20


KEPT = """
kept = []
for _ in range(9):
    kept.append(model(torch.ones(64, 8)))
"""


@pytest.mark.thorough
def test_the_memory_of_a_script_is_told_in_every_form(script):
    folder = script(KEPT)
    formats = ("--format", "json,markdown,html,csv,brief")
    done = run(folder, "--memory", *formats, "--output-dir", ".", "script.py")
    assert done.returncode == 0, done.stderr
    printed = done.stderr
    for text in ("Memory by step on cpu", "a step", "graph of kept[2]", "script.py:13"):
        assert text in printed
    loop = tg.load(folder / "loop.json")
    first = loop.memory.outliving[0]
    # Linear saves its input (8 floats wide), relu its result (8).
    assert (first.growth, first.by_graph, first.holder) == (64 * 8 * 4, True, "kept[2]")
    for file in ("loop.md", "loop.brief.txt"):
        assert "graph of kept[2]" in (folder / file).read_text()
    page = page_data.data((folder / "loop.html").read_text())["parts"]
    steps = page_data.table(loop, "Memory by step on cpu")
    assert steps["peak"] == [step.peak for step in loop.memory.steps]
    assert "memory watched" in [phase for phase, _, _ in page["steps"]["phases"]]
