"""What a user can do wrong, each with its own id, message, cause, remedy and exit code."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.support import records

import torchgauge as tg
from torchgauge.cli import profile as verb
from torchgauge.cli.main import main
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.processes import processes
from torchgauge.records import codec

MODELS = '''
import collections, dataclasses, os, signal, sys, threading, time
import torch
from torch import nn

ONE = torch.ones(1, 4)


def running(forward, inputs=ONE, **parts):
    """A factory of a model with this forward."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part())

    Model.forward = forward
    return lambda: (Model(), inputs)


def linear():
    return nn.Linear(4, 4), ONE

def unfed():
    return nn.Linear(4, 4)

def raises():
    raise ValueError("the factory's own words")

def leaves():
    sys.exit(7)

def text():
    return "a model"

def triple():
    return nn.Linear(4, 4), ONE, ONE

def needy(width, *, depth):
    return nn.Linear(width, depth)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.conv1(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(Block())

    def forward(self, x):
        return self.layer1(x)


def net():
    return Net()

def deep(limit=None):
    if limit:
        sys.setrecursionlimit(limit)
    model = nn.Linear(4, 4)
    for _ in range(1200):
        model = nn.Sequential(model)
    return model, ONE

def endless():
    def forward(self, x):
        return self(x)
    return running(forward)()


@dataclasses.dataclass
class Boxes:
    boxes: torch.Tensor
    labels: list

@dataclasses.dataclass(slots=True)
class Slots:
    boxes: torch.Tensor

Pair = collections.namedtuple("Pair", "one two")

def knot(x):
    ring = [x]
    ring.append(ring)
    return ring

def generator(self, x):
    yield x

def changes(self, x):
    self.linear.weight.data.add_(1)
    self.linear.bias = nn.Parameter(self.linear.bias + 1)
    return self.linear(x)

def threads(self, x):
    left = threading.Thread(target=time.sleep, args=(0.2,), daemon=True)
    left.start()
    other = threading.Thread(target=lambda: x @ x.T)
    other.start()
    other.join()
    return x

def hooks(self, x):
    self.linear.register_forward_hook(lambda *_: None)
    return self.linear(x)

def prints(self, x):
    print("chatter")
    os.write(1, b"chatter below Python")
    return x

def sleeps(self, x):
    time.sleep(0.01)
    return x

def forks(self, x):
    torch.ones(512, 512) @ torch.ones(512, 512)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return x

def out_of_memory(self, x):
    return torch.empty(2**60, dtype=torch.uint8)

def hangs(self, x):
    time.sleep(600)

def exits(self, x):
    exit(3)

def interrupted(where):
    def forward(self, x):
        frame = sys._getframe()
        files = set()
        while frame:
            files.add(os.path.basename(frame.f_code.co_filename))
            frame = frame.f_back
        self.calls = getattr(self, "calls", 0) + 1
        if where in files or where == self.calls:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return x
    return forward

def interrupted_loading():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


deep_with_limit = lambda: deep(10**6)
nothing = running(lambda self, x: None)
number = running(lambda self, x: 3.5)
words = running(lambda self, x: "words")
nested = running(lambda self, x: {"a": [x, (x, {"b": x})], 3: None})
ring = running(lambda self, x: knot(x))
box = running(lambda self, x: Boxes(x, [x]))
slots = running(lambda self, x: Slots(x))
pair = running(lambda self, x: Pair(x, None))
yields = running(generator)
empty = running(lambda self, x: x[:0])
sparse = running(lambda self, x: x.to_sparse())
complexes = running(lambda self, x: torch.complex(x, x))
integers = running(lambda self, x: x.long())
nan = running(lambda self, x: {"logits": Boxes(x * float("nan"), [x])})
infinite = running(lambda self, x: (x / 0, x))
complex_nan = running(lambda self, x: torch.complex(x, x * float("nan")))
changing = running(changes, linear=lambda: nn.Linear(4, 4))
threading_ = running(threads)
hooking = running(hooks, linear=lambda: nn.Linear(4, 4))
printing = running(prints)
sleeping = running(sleeps)
forking = running(forks)
hungry = running(out_of_memory, linear=lambda: nn.Linear(4, 4))
hanging = running(hangs)
exiting = running(exits)
exiting_at_once = running(lambda self, x: os._exit(5))
killed = running(lambda self, x: os.kill(os.getpid(), signal.SIGKILL))
interrupted_first = running(interrupted(1))
interrupted_later = running(interrupted(3))
interrupted_system = running(interrupted("system.py"))
interrupted_memory = running(interrupted("memory.py"))
'''
QUICK = ["--iterations", "3", "--warmup", "1", "--quick"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with every file that the cases name."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "models.py").write_text(MODELS)
    (folder / "syntax.py").write_text("def make(:\n")
    good = torch.nn.Linear(4, 4).state_dict()
    torch.save({"weight": good["weight"]}, folder / "missing.pt")
    save_file({**good, "more": torch.ones(1)}, folder / "extra.safetensors")
    torch.save({**good, "bias": torch.ones(5)}, folder / "shape.pt")
    with (folder / "code.pt").open("wb") as file:
        pickle.dump(_RunsCode(folder / "it-ran"), file)
    torch.save({"weight": _RunsCode(folder / "it-ran")}, folder / "code-zipped.pt")
    (folder / "text.pt").write_text("no weights")
    (folder / "cut.safetensors").write_bytes((folder / "extra.safetensors").read_bytes()[:50])
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text(
        '{"model_type": "mine", "architectures": ["Mine"], "auto_map": {"AutoModel": "x.Mine"}}'
    )
    (folder / "plain").mkdir()
    for name in ("program.pt2", "program.ts", "program.pt", "model.onnx"):
        (folder / name).write_bytes(b"anything")
    return folder


class _RunsCode:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@dataclass
class Case:
    """`cause` and `message` are parts of what is said."""

    arguments: str
    id: str
    message: str = ""
    cause: str = ""
    remedy: str = ""
    code: int = 2

    def __str__(self) -> str:
        return f"{self.id}: {self.arguments}"


def refused(arguments, folder, capsys, code=2):
    """Run the command in-process; return the error as JSON and what was said."""
    words = [word.replace("@", f"{folder}/") for word in arguments.split()]
    assert main(["profile", *words, "--json", *QUICK]) == code
    said = capsys.readouterr()
    return json.loads(said.out), said.err


REFUSED = [
    # the target
    Case("@none.py:make", "file-missing", "There is no file"),
    Case("nowhere.at.all:make", "module-missing", "no Python module", "neither in"),
    Case("resnet18", "target-unknown", "'resnet18'", "none of the known", "torchvision:resnet18"),
    Case("@plain", "target-unknown", "", "has no config.json"),
    Case("@models.py", "factory-missing", "does not say what makes", "It has", "after a colon"),
    Case("@models.py:liner", "factory-missing", "no 'liner'", "", "linear"),
    Case("@models.py:raises", "factory-raised", "ValueError: the factory's own words"),
    Case("@models.py:leaves", "factory-raised", "SystemExit: 7"),
    Case("@syntax.py:make", "factory-raised", "SyntaxError"),
    Case("@models.py:text", "factory-result", "gives str, not a model", "", "torch.nn.Module"),
    Case("@models.py:triple", "factory-result", "a tuple of 3"),
    Case("@models.py:needy", "factory-arguments", "width, depth", "without any"),
    Case(
        "@models.py:deep", "recursion-limit", "Loading the model", "1,000", "setrecursionlimit", 1
    ),
    Case("torchvision:resnet19", "torchvision-unknown", "", "", "resnet18"),
    pytest.param(Case("@model.onnx", "onnx-unreadable"), marks=pytest.mark.thorough),
    Case("@program.pt2", "untrusted-file", "holds a program", "whoever wrote it", "--trust"),
    pytest.param(
        Case("@program.pt2 --trust", "program-unreadable", "saved program"), marks=pytest.mark.slow
    ),
    Case("@program.pt", "target-not-supported", "", "a checkpoint", "--weights"),
    Case("@hf", "hf-remote-code", "not run", "auto_map"),
    # the inputs
    Case(
        "@models.py:unfed", "input-missing", "has no example inputs", "forward(", "--input input="
    ),
    Case("@models.py:unfed --input 2xx3", "input-spec", "at character 3", "^"),
    Case("@models.py:unfed --input 2x3:float31", "input-spec", "float31"),
    Case("@models.py:unfed --input x=1 --input x=2", "input-spec", "given 2 times"),
    # options
    Case("@models.py:linear --precision fp8", "precision-unknown", "fp8", "fp32, tf32, bf16"),
    Case("@models.py:linear --device tpu", "device-unknown", "tpu"),
    Case("@models.py:linear --device cuda:63", "device-absent", "cuda"),
    Case("@models.py:linear --batch 0", "option-invalid", "'0' is not a whole number"),
    # weights
    Case("@models.py:linear --weights @none.pt", "file-missing", "no weights file"),
    Case("@models.py:linear --weights @missing.pt", "weights-mismatch", "", "1 missing"),
    Case("@models.py:linear --weights @extra.safetensors", "weights-mismatch", "", "not in the"),
    Case("@models.py:linear --weights @shape.pt", "weights-mismatch", "", "bias (5, the model has"),
    Case("@models.py:linear --weights @code.pt", "weights-untrusted", "run code", "system"),
    Case("@models.py:linear --weights @code-zipped.pt", "weights-untrusted", "run code", "system"),
    Case("@models.py:linear --weights @text.pt", "weights-unreadable", "cannot be read"),
    Case("@models.py:linear --weights @cut.safetensors", "weights-unreadable", "cannot be read"),
    # what comes out
    Case("@models.py:linear --output-dir @models.py/x", "output-unwritable", "", "directory"),
    Case("@models.py:linear --output-dir /proc/x", "output-unwritable", "", "", "another place"),
    Case("@models.py:linear --format csv", "option-conflict", "--output-dir"),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_cannot_be_measured_is_refused(case, folder, capsys):
    answer, errors = refused(case.arguments, folder, capsys, case.code)
    error = answer["error"]
    assert error["id"] == case.id
    assert case.message in error["message"]
    assert case.cause in error["cause"]
    assert case.remedy in error["remedy"]
    assert error["cause"] or error["remedy"]
    assert f"[{case.id}]" in errors
    assert "src/torchgauge" not in errors  # the user's own traceback, never ours
    assert not (folder / "it-ran").exists()


@pytest.mark.parametrize(
    "name", ["code.pt", "code-zipped.pt", "text.pt", "cut.safetensors", "cut.pt", "folder.pt"]
)
def test_bad_weights_have_no_traceback_of_libraries(name, folder, capsys):
    """torch raised, and nothing of the user's was running."""
    whole = folder / "whole.pt"
    torch.save({"weight": torch.ones(4, 4)}, whole)
    (folder / "cut.pt").write_bytes(whole.read_bytes()[:-200])
    (folder / "folder.pt").mkdir(exist_ok=True)
    answer, errors = refused(f"@models.py:linear --weights @{name}", folder, capsys)
    assert answer["error"]["id"] in ("weights-untrusted", "weights-unreadable", "file-missing")
    assert errors.startswith("torchgauge: error: ")
    assert "Traceback" not in errors


def test_a_pickle_that_runs_code_would_have_run_it(folder):
    """The cases above could not fail if the files were harmless."""
    with (folder / "code.pt").open("rb") as file:
        pickle.load(file)
    assert (folder / "it-ran").exists()
    (folder / "it-ran").unlink()


def test_the_factorys_own_traceback_is_shown(folder, capsys):
    _, errors = refused("@models.py:raises", folder, capsys)
    assert 'raise ValueError("the factory\'s own words")' in errors
    assert "models.py" in errors


FAILED = [
    Case("@models.py:net --input 1x4x8x8", "forward-raised", "RuntimeError",
         "In layer1.0.conv1 (Conv2d): RuntimeError: Given groups=1", "same inputs"),
    Case("@models.py:unfed --input 1x5", "forward-raised", "", "In Linear: RuntimeError: mat1"),
    Case("@models.py:hungry", "out-of-memory", "Memory ran out on cpu",
         "1,153 PB were requested", "smaller batch"),
    Case("@models.py:exiting", "model-exited", "called exit()", "In Model: SystemExit: 3"),
    Case("@models.py:endless", "recursion-limit", "recursed deeper", "limit is 1,000"),
]  # fmt: skip

# Those of which a child process fails; the first one's is killed.
FAILED += [
    pytest.param(
        Case("@models.py:killed --processes 2", "child-killed", "SIGKILL", "Signal 9"),
        marks=pytest.mark.thorough,
    ),
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in (
            Case("@models.py:exiting_at_once --processes 2", "child-failed", "", "Exit code 5"),
            Case(
                "@models.py:hanging --processes 2 --budget 0.1", "child-timeout", "in time", "after"
            ),
            Case(
                "@models.py:exiting --processes 2", "model-exited", "called exit()", "SystemExit: 3"
            ),
        )
    ),
]


@pytest.mark.parametrize("case", FAILED, ids=str)
def test_what_fails_while_measured_leaves_the_rest_of_the_record(case, folder, capsys, monkeypatch):
    monkeypatch.setattr(processes, "START_LIMIT", 2.0 if "hanging" in case.arguments else 100.0)
    record, errors = refused(case.arguments, folder, capsys, code=1)
    first = next(warning for warning in record["warnings"] if warning["failed"])
    assert first["id"] == case.id
    assert case.message in first["message"]
    assert case.cause in first["cause"]
    assert case.remedy in first["remedy"]
    assert first["remedy"]
    assert record["size"] is not None
    assert record["latency"] is None
    assert "src/torchgauge" not in errors


def test_free_memory_stands_beside_what_was_asked_for(folder, capsys):
    record, _ = refused("@models.py:hungry", folder, capsys, code=1)
    failed = [warning for warning in record["warnings"] if warning["failed"]]
    assert {warning["probe"] for warning in failed} == {
        "latency",
        "system",
        "cost",
        "memory",
        "timeline",
    }
    assert all(" are free." in warning["cause"] for warning in failed)
    assert "unknown are free" not in failed[0]["cause"]


FURTHER = (
    *("number", "words", "nested", "box", "slots", "pair", "sparse", "integers", "hooking"),
    *("printing", "sleeping", "forking", "ring", "complexes", "threading_"),
)
FINE = (
    *("nothing", "yields", "empty", "changing"),
    *(pytest.param(factory, marks=pytest.mark.thorough) for factory in FURTHER),
    pytest.param("deep_with_limit", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("factory", FINE)
def test_strange_models_are_measured_like_any_other(factory, folder, capsys):
    limit = sys.getrecursionlimit()
    try:
        record, errors = refused(f"@models.py:{factory}", folder, capsys, code=0)
    finally:
        sys.setrecursionlimit(limit)
    assert record["memory"]["peak"] > 0
    assert len(record["latency"]["processes"][0]["samples"]) == 4
    assert record["warnings"] == []
    ids = {warning["id"] for warning in record["memory"]["warnings"]}
    assert "output-not-finite" not in ids
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("nan", "1 of 2 output tensors hold NaN."),
        pytest.param(
            "infinite", "1 of 2 output tensors hold infinities.", marks=pytest.mark.thorough
        ),
        pytest.param("complex_nan", "1 of 1 output tensors hold NaN.", marks=pytest.mark.thorough),
    ],
)
def test_outputs_that_are_no_numbers_bring_a_warning(factory, says, folder, capsys):
    record, _ = refused(f"@models.py:{factory}", folder, capsys, code=0)
    found = [w for w in record["memory"]["warnings"] if w["id"] == "output-not-finite"]
    assert [warning["message"] for warning in found] == [says]
    assert found[0]["remedy"]
    assert not found[0]["failed"]
    assert record["latency"] is not None


def _edited(change):
    content = json.loads(codec.encode(records.profile()))
    change(content)
    return json.dumps(content).encode()


RECORDS = {
    "record-unreadable": codec.encode(records.profile())[:-40],
    "record-foreign": b'{"a": [1]}',
    "record-newer": _edited(lambda r: r.update(schema="torchgauge.profile/999")),
    "record-invalid": _edited(lambda r: r["latency"].update(median="fast")),
}


@pytest.mark.parametrize("id", RECORDS)
def test_a_record_that_is_none_says_why(id, tmp_path):
    path = tmp_path / "profile.json"
    path.write_bytes(RECORDS[id])
    with pytest.raises(TorchgaugeError) as caught:
        tg.load(path)
    assert caught.value.id == id
    assert str(path) in caught.value.message
    assert caught.value.cause
    assert caught.value.remedy
    assert caught.value.exit_code == 2


INTERRUPTED = {
    "interrupted_first": (),
    "interrupted_later": ("latency",),
    "interrupted_system": ("latency",),
    "interrupted_memory": ("latency", "system"),
}


@pytest.mark.parametrize("factory", INTERRUPTED)
def test_ctrl_c_in_a_probe_keeps_the_record_until_there(factory, folder, tmp_path, capsys):
    arguments = [f"{folder}/models.py:{factory}", *QUICK, "--output-dir", str(tmp_path)]
    assert main(["profile", *arguments]) == 130
    profile = tg.load(tmp_path / "profile.json")
    assert profile.interrupted
    assert profile.size is not None
    parts = ("latency", "system", "memory")
    assert tuple(p for p in parts if getattr(profile, p) is not None) == INTERRUPTED[factory]
    assert not any(warning.failed for warning in profile.all_warnings)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_loading_ends_with_130(folder, capsys):
    assert main(["profile", f"{folder}/models.py:interrupted_loading", *QUICK]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "torchgauge: interrupted\n"


@pytest.mark.thorough
def test_ctrl_c_while_writing_is_heeded_after_it(folder, tmp_path, capsys, monkeypatch):
    write = verb.formats.write

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return write(*arguments)

    monkeypatch.setattr(verb.formats, "write", interrupted)
    arguments = [f"{folder}/models.py:linear", *QUICK, "--output-dir", str(tmp_path)]
    assert main(["profile", *arguments]) == 130
    assert tg.load(tmp_path / "profile.json").memory is not None
    assert "Wrote" in capsys.readouterr().err


@pytest.mark.thorough
def test_ctrl_c_between_two_probes_keeps_what_the_first_found(folder, tmp_path, monkeypatch):
    from torchgauge.measure import plan

    describe = plan.describe

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return describe(*arguments, **options)

    monkeypatch.setattr(plan, "describe", interrupted)
    arguments = [f"{folder}/models.py:linear", *QUICK, "--output-dir", str(tmp_path)]
    assert main(["profile", *arguments]) == 130
    assert tg.load(tmp_path / "profile.json").memory is not None


@pytest.fixture
def full_disk(tmp_path):
    """Yield a file system with room for nothing."""
    place = tmp_path / "full"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=64k", "torchgauge-test", str(place)]
    if not mount or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_found_before_measuring(full_disk, folder, capsys):
    answer, _ = refused(f"@models.py:exiting --output-dir {full_disk}", folder, capsys)
    assert answer["error"]["id"] == "output-unwritable"
    assert answer["error"]["cause"] == "No space left on device"
    assert [path.name for path in full_disk.iterdir()] == ["filler"]


def test_a_disk_that_fills_while_measuring_loses_no_measurement(
    full_disk, folder, capsys, monkeypatch
):
    monkeypatch.setattr(verb.formats, "check_writable", lambda folder: None)
    record, errors = refused(f"@models.py:linear --output-dir {full_disk}", folder, capsys)
    assert record["latency"]["median"] > 0
    assert "[output-unwritable]" in errors


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_not_needed(folder):
    home = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere", "USER": "nobody"}
    command = [sys.executable, "-m", "torchgauge", "profile", f"{folder}/models.py:linear"]
    done = subprocess.run(
        [*command, *QUICK, "--json"], capture_output=True, text=True, env={**os.environ, **home}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["memory"]["peak"] > 0


@pytest.mark.slow
def test_processes_are_started_beside_running_threads(folder, capsys):
    torch.ones(512, 512) @ torch.ones(512, 512)  # OpenMP's threads are there
    record, _ = refused("@models.py:linear --processes 2", folder, capsys, code=0)
    assert len(record["latency"]["processes"]) == 2
