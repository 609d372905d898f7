"""Lines of a real run: a known loop, a known wait, and what the sampler leaves behind."""

import inspect
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.measure.forward import opened
from torchgauge.measure.lines import line_samples, lines
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.targets.builds.source import Source


class Busy(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.seconds = seconds

    def forward(self, x):
        x = self.linear(x)
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return x.relu()


class Waiting(nn.Module):
    def forward(self, x):
        time.sleep(0.002)
        return x + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Busy(0.002)
        self.second = Busy(0.001)

    def forward(self, x):
        return self.second(self.first(x))


def line_of(thing, text):
    source, start = inspect.getsourcelines(thing)
    return start + next(n for n, line in enumerate(source) if text in line)


def own(node):
    """Return the seconds that a node's row has outside of its operators."""
    return node.row.host * 1e-9


def has_most_of(node, line):
    """Tell whether the line has most of its layer's own time, as it has on a loaded machine too,
    where any line may be held up."""
    return 0.5 * own(node) < line.time <= own(node) * (1 + 1e-9)


def profiled(model, *inputs, **options):
    quick = {"iterations": 3, "warmup": 1, "progress": False, "effort": "quick"}
    return tg.profile(model, inputs, lines=True, **quick, **options)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(lines, "SECONDS", 0.7)


@pytest.mark.thorough
def test_a_loop_in_python_is_the_first_line_and_has_its_time():
    tree = profiled(Net(), torch.ones(32, 64)).tree
    loop = line_of(Busy, "while")
    times = [one.time for one in tree.lines]
    assert times == sorted(times, reverse=True)
    # On a loaded machine any line may be held up: the loop has most of its layer all the same.
    first, second = (
        next(one for one in tree.lines if one.layer == layer) for layer in ("first", "second")
    )
    assert (first.line, first.file, second.line) == (loop, __file__, loop)
    assert first.source.startswith("while time.perf_counter() < end")
    for layer in ("first", "second"):
        whole = sum(one.time for one in tree.lines if one.layer == layer)
        assert 0.5 * own(tree.find(layer)) < whole <= own(tree.find(layer)) * (1 + 1e-9)
    assert first.time > 0.5 * 0.002
    assert first.share == pytest.approx(first.time / tree.root.host_time)
    assert sum(one.share for one in tree.lines) <= 1
    passes = {one.name: one for one in tree.passes}
    assert passes["lines"].steps > 5
    assert passes["lines"].duration > 0.002
    assert passes["lines"].bare == passes["stamps"].bare


@pytest.mark.thorough
def test_what_waits_in_c_without_an_operator_counts_too():
    tree = profiled(Waiting(), torch.ones(4)).tree
    assert tree.lines[0].line == line_of(Waiting, "sleep")
    assert has_most_of(tree.root, tree.lines[0])


@pytest.mark.thorough
def test_time_of_operators_is_no_line_s():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024), Busy(0.0005))
    model[2].linear = nn.Identity()
    tree = profiled(model, torch.ones(256, 1024)).tree
    operators = sum(row.host for row in tree.rows if row.kind == "operator") * 1e-9
    assert operators > 0.001
    assert tree.lines[0].line == line_of(Busy, "while")
    assert sum(one.time for one in tree.lines) < tree.root.host_time - operators + 1e-9


def loss(outputs, _inputs):
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return outputs.sum()


@pytest.mark.thorough
def test_a_loss_function_is_outside_of_the_model():
    step = tg.Training(loss, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    tree = profiled(nn.Linear(4, 4), torch.ones(2, 4), train=step).tree
    first = tree.lines[0]
    assert (first.layer, first.line) == ("outside the model", line_of(loss, "while"))
    (bucket,) = (n for n in tree.root.children if n.name == "outside the model")
    assert has_most_of(bucket, first)


def test_signal_and_timer_are_as_before_also_where_the_step_raises():
    class Raises(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 2:
                raise ValueError("enough")
            return x

    tree = Tree(
        rows=(TreeRow(name="Raises", kind="model", parent=-1, calls=1, host=1000),),
        passes=(Pass(name="stamps", steps=1, duration=1e-3, bare=1e-3),),
    )
    with pytest.raises(tg.MeasurementError, match="enough"):
        lines.measure(opened(Source.of_object(Raises(), (torch.ones(1),))), tree)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_where_the_signal_is_in_use_the_tree_is_without_lines():
    def mine(*_):
        pytest.fail("the timer ran")

    signal.signal(signal.SIGALRM, mine)
    try:
        profile = profiled(nn.ReLU(), torch.ones(4))
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert profile.tree.lines == ()
    assert [w.id for w in profile.warnings if w.failed] == ["lines-unavailable"]


def test_on_another_thread_it_says_so():
    profiles = []
    thread = threading.Thread(target=lambda: profiles.append(profiled(nn.ReLU(), torch.ones(4))))
    thread.start()
    thread.join()
    (failed,) = (one for one in profiles[0].warnings if one.failed)
    assert (failed.id, failed.probe) == ("lines-unavailable", "lines")
    assert "main thread" in failed.cause


def test_torch_s_own_layers_are_no_source_and_others_are():
    torchvision = pytest.importorskip("torchvision")
    found = line_samples.sources_of(torchvision.models.resnet18())
    assert {Path(file).name for file in found} == {"resnet.py"}
    assert line_samples.sources_of(nn.Sequential(nn.Linear(2, 2))) == frozenset()


def test_lines_need_a_recording():
    with pytest.raises(tg.InputError) as caught:
        profiled(nn.ReLU(), torch.ones(4), detail="layers")
    assert caught.value.id == "option-conflict"


MODEL = """
import time, torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end: pass
        return x.relu()

def make():
    return Net(), torch.ones(4)
"""


@pytest.mark.slow
def test_the_console_shows_them_when_asked(tmp_path, capsys):
    (tmp_path / "mymodel.py").write_text(MODEL)
    command = ["profile", f"{tmp_path}/mymodel.py:make", "--iterations", "3", "--warmup", "1"]
    assert main([*command, "--lines"]) == 0
    shown = capsys.readouterr().out
    (line,) = (one for one in shown.splitlines() if "mymodel.py:8" in one)
    assert "while time.perf_counter()" in line
    assert "\n  lines " in shown
    assert main(command) == 0
    assert "mymodel.py:8" not in capsys.readouterr().out
