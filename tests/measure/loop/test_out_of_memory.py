"""Memory that runs out in a loop: what was alive is written, and the program's end is its own."""

import contextlib
import gc
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch._dynamo import trace_rules

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.measure.memory.live_tensors import live_tensors

TOO_MUCH = 1 << 46  # bytes that no machine gives


class Hungry(nn.Module):
    """Asks for too much in its third call."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 32, bias=False)
        self.calls = 0

    def forward(self, x):
        hidden = self.first(x)
        self.calls += 1
        if self.calls == 3:
            torch.empty(TOO_MUCH, dtype=torch.uint8)
        return hidden


def train(model, steps, caught):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        try:
            model(torch.ones(128, 64)).sum().backward()
        except RuntimeError:
            if not caught:
                raise
            continue
        optimizer.step()


def ended_by_memory(loop):
    """Return the event of a loop that no folder was given for, and what is shown of it."""
    with pytest.raises(Exception, match=r"memory|failed") as raised, tg.timeline() as run:
        loop()
    (event,) = run.record.out_of_memory
    assert run.record.ran_out is event
    assert run.written == ()
    return event, str(run), raised.value


def too_much(*_):
    torch.empty(TOO_MUCH, dtype=torch.uint8)


def test_what_ended_the_loop_is_noted_without_a_folder_too():
    event, shown, _ = ended_by_memory(lambda: train(nn.Sequential(Hungry()), 5, caught=False))
    assert (event.layer, event.phase, event.step) == ("0 (Hungry)", "forward", 2)
    assert (event.requested, event.caught, event.snapshot) == (TOO_MUCH, False, "")
    assert event.free > 0
    names = {tensor.name: tensor.part for tensor in event.tensors}
    assert names["hidden in Hungry.forward"] == "activations"
    assert names["0.first.weight.momentum_buffer"] == "optimizer"
    assert "Memory ran out on cpu" in shown
    assert "in the forward pass, after 2 steps" in shown
    assert "Try other sizes" in shown
    assert "Verdict" not in shown
    assert "Where the time goes" not in shown


def in_the_backward_pass():
    loss = nn.Linear(64, 1)(torch.ones(2, 64)).sum()
    loss.register_hook(too_much)
    loss.backward()


LIMITED = """\
import resource, sys, torch
from torch import nn
torch.set_num_threads(1)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        self.held = nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(self.held)

model = nn.Sequential(nn.Linear(64, 64), Block(), nn.Linear(64, 1))
loss = model(torch.ones(8, 32768, 64)).sum()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]) * 2**20,) * 2)
loss.backward()
"""


@pytest.mark.parametrize(
    ("room", "layer", "function", "after"),
    # The gradients of down's and of gelu's inputs are 256 MiB each, and both outputs stay alive. Of
    # the second it may be the view before that copies.
    [(200, "1.down (Linear)", "AddmmBackward0", "2 (Linear)"),
     (450, "", "", "1.down (Linear)")],
)  # fmt: skip
@pytest.mark.slow
def test_a_real_limit_in_the_backward_pass_names_the_layer(tmp_path, room, layer, function, after):
    (tmp_path / "train.py").write_text(LIMITED)
    command = [sys.executable, "-m", "torchgauge", "run", "--on-oom", "out", "train.py", str(room)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (event,) = tg.load(tmp_path / "out" / "oom.json").out_of_memory
    assert (event.phase, event.layer, event.function, event.after) == (
        "backward", layer, function, after
    )  # fmt: skip
    assert event.requested == 2**28
    assert "in the backward pass, " in done.stderr


def in_the_optimizer():
    model = nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(too_much)
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()


def in_a_loader_s_module():
    class Transform(nn.Module):
        def forward(self, x):
            too_much()
            return x

    for x in torch.utils.data.DataLoader([torch.ones(64)], collate_fn=Transform()):
        nn.Linear(64, 1)(x)


def in_a_checkpoint_that_runs_again():
    class Part(nn.Linear):
        def forward(self, x):
            if torch._C._current_graph_task_id() != -1:
                too_much()
            return super().forward(x)

    x = torch.ones(2, 64, requires_grad=True)
    torch.utils.checkpoint.checkpoint(Part(64, 1), x, use_reentrant=False).sum().backward()


def of_the_loop():
    nn.Linear(64, 1)(torch.ones(2, 64))
    too_much()


@pytest.mark.parametrize(
    ("loop", "phase"),
    [
        (in_the_backward_pass, "backward"),
        (in_the_optimizer, "optimizer"),
        (in_a_loader_s_module, "loading"),
        (in_a_checkpoint_that_runs_again, "recompute"),
        (of_the_loop, "outside"),
    ],
)
def test_the_phase_is_what_the_loop_did(loop, phase):
    event, _, _ = ended_by_memory(loop)
    assert event.phase == phase
    assert event.requested == TOO_MUCH


def test_what_lived_is_not_kept_alive_by_the_record():
    references = []

    def loop():
        held = torch.ones(100)
        references.append(weakref.ref(held))
        too_much()

    with contextlib.suppress(RuntimeError), tg.timeline() as run:
        loop()
    gc.collect()
    assert run.record.ran_out.tensors
    assert references[0]() is None


def test_an_error_that_another_came_from_is_what_ended_the_loop():
    def loop():
        try:
            train(nn.Sequential(Hungry()), 5, caught=False)
        except RuntimeError as error:
            text = "the training failed"
            raise ValueError(text) from error

    event, _, raised = ended_by_memory(loop)
    assert isinstance(raised, ValueError)
    assert event.layer == "0 (Hungry)"


def test_a_gpu_that_runs_out_ends_the_loop_with_its_error_alone(monkeypatch):
    """The error is a fake: without a GPU nothing of it can be asked."""

    def loop():
        model = nn.Linear(2, 2)
        model(torch.ones(1, 2))
        text = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 4.00 MiB free."
        raise torch.OutOfMemoryError(text)

    with tg.timeline() as failing, pytest.raises(torch.OutOfMemoryError):
        loop()
    assert failing.record.ran_out is None
    with pytest.raises(torch.OutOfMemoryError), tg.timeline() as run:  # torch has no CUDA here
        loop()
    if not torch.cuda.is_available():
        assert {"oom-unwritten"} <= {warning.id for warning in run.warnings}
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 7000)
    with pytest.raises(torch.OutOfMemoryError), tg.timeline() as run:
        loop()
    event = run.record.ran_out
    assert (event.device, event.requested, event.total) == ("cuda:0", 20 * 2**20, 7000)


@pytest.mark.parametrize("caught", [False, True])
def test_what_was_alive_is_written_and_the_error_is_the_program_s(caught, tmp_path):
    call = nn.Module.__call__
    model = nn.Sequential(Hungry())
    timeline = tg.timeline(on_oom=tmp_path / "out")
    try:
        with timeline as run:
            train(model, 5, caught)
    except RuntimeError as error:
        assert not caught
        assert "allocate memory" in str(error)  # noqa: PT017
    assert nn.Module.__call__ is call
    (event,) = run.record.out_of_memory
    assert event.caught is caught
    assert (event.device, event.step, event.layer) == ("cpu", 2, "0 (Hungry)")
    assert event.requested == TOO_MUCH
    ours = {tensor.name: tensor for tensor in event.tensors if tensor.size == 64 * 32 * 4}
    assert ours["0.first.weight"].part == "parameters"
    assert ours["0.first.weight.grad"].part == "gradients"
    assert ours["0.first.weight.momentum_buffer"].part == "optimizer"
    hidden = next(t for t in event.tensors if t.name == "hidden in Hungry.forward")
    assert (hidden.part, hidden.size, hidden.shape) == ("activations", 128 * 32 * 4, (128, 32))
    assert timeline.written == (tmp_path / "out" / "oom.json",)
    assert tg.load(timeline.written[0]).out_of_memory == (event,)
    assert "Memory ran out on cpu" in str(run)


def test_where_memory_suffices_nothing_is_written(tmp_path):
    with tg.timeline(on_oom=tmp_path / "out") as run, pytest.raises(RuntimeError, match="shape"):
        nn.Linear(4, 2)(torch.ones(3))
    assert run.record.out_of_memory == ()
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").touch()
    with tg.timeline(on_oom=tmp_path / "file") as run:
        train(nn.Sequential(Hungry()), 4, caught=True)
    assert {"oom-unwritten"} <= {warning.id for warning in run.record.warnings}
    assert len(run.record.out_of_memory) == 1


def test_the_command_s_exit_code_is_the_script_s(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(4, 2)\nmodel(torch.ones(1, 4))\n"
        f"torch.empty({TOO_MUCH}, dtype=torch.uint8)\n"
    )
    assert main(["run", str(script)]) == 1
    told = capsys.readouterr().err
    assert "Memory ran out on cpu" in told
    assert "Nothing stands out" not in told
    assert main(["run", "--on-oom", str(tmp_path / "out"), str(script)]) == 1
    record = tg.load(tmp_path / "out" / "oom.json")
    (event,) = record.out_of_memory
    assert (event.caught, event.layer) == (False, "")
    told = capsys.readouterr().err
    assert "oom.json" in told
    assert "Memory ran out on cpu" in told
    assert "asked for" in told


def test_what_autograd_alone_holds_is_found():
    def product():
        saved = torch.ones(300, 7, requires_grad=True).exp()
        return saved.tanh().sum()

    result = product()
    sizes = [(t.operator, t.size) for t in live_tensors("cpu") if t.shape == (300, 7)]
    assert sorted(sizes)[-2:] == [("ExpBackward0", 8400), ("TanhBackward0", 8400)]
    assert result.grad_fn is not None


def test_a_gpu_s_snapshot_is_written_as_its_memory_runs_out(tmp_path, monkeypatch):
    """The allocator, its history and its error are fakes: the order of calls is torch's.

    A torch for the CPU lacks the function that attaches the observer, but lists its name.
    """
    attach = "_cuda_attach_out_of_memory_observer"
    assert f"torch._C.{attach}" in trace_rules.torch_c_binding_in_graph_functions
    observers, history = [], []
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda function: function())
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, attach, observers.append, raising=False)
    monkeypatch.setattr(
        torch.cuda.memory, "_record_memory_history", lambda **how: history.append(how)
    )
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": []})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 7000)
    monkeypatch.setattr("torchgauge.measure.loop.loop_steps._device", lambda: "cpu")

    class Model(nn.Linear):
        def forward(self, x):
            observers[0](0, 512, 4096, 0)
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 4.00 MiB free."
            )

    with tg.timeline(on_oom=tmp_path) as run, pytest.raises(torch.OutOfMemoryError):
        Model(2, 2)(torch.ones(1, 2))
    (event,) = run.record.out_of_memory
    assert (event.device, event.requested, event.total) == ("cuda:0", 20 * 2**20, 7000)
    assert event.caught
    assert event.snapshot == "oom.cuda0.pickle"
    assert pickle.loads((tmp_path / event.snapshot).read_bytes()) == {"segments": []}
    assert history == [{"max_entries": 100_000}, {"enabled": None}]
    observers[0](0, 512, 4096, 0)  # after the timeline it does nothing
    assert len(list(tmp_path.glob("*.pickle"))) == 1
