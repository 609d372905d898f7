"""Memory that runs out in a loop: what was alive is written, and the program's end is its own."""

import pickle

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
    assert main(["run", "--on-oom", str(tmp_path / "out"), str(script)]) == 1
    record = tg.load(tmp_path / "out" / "oom.json")
    (event,) = record.out_of_memory
    assert (event.caught, event.layer) == (False, "")
    assert "oom.json" in capsys.readouterr().err


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
    monkeypatch.setattr("torchgauge.measure.loop.loop_recorder._device", lambda: "cpu")

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
