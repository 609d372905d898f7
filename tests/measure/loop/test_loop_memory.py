"""The memory of a loop's steps, on loops of which every byte is known."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgauge as tg
from torchgauge.measure.loop import loop_memory
from torchgauge.measure.memory.allocator import new_peak
from torchgauge.measure.work.internals import modes

F = 4  # bytes of a float


def steps_of(run):
    return run.record.memory.steps


def watched(step, model=None, *, steps=6, total=8, **schedule):
    """Return the memory of a loop that calls `step` with its number, and ends each itself."""
    with tg.timeline(
        model, memory=True, schedule=tg.Schedule(**{"skip": 0, "record": steps, **schedule})
    ) as run:
        for number in range(1, total + 1):
            step(number)
            run.step()
    memory = run.record.memory
    assert modes() == []
    for one in memory.steps:
        assert sum(one.parts.values()) == one.after
    peak = max(one.peak for one in memory.steps)
    assert sum(tensor.size for tensor in memory.at_peak) == peak
    assert len(memory.steps) == steps
    return memory


def trained(model, batch, *, after=lambda _: None, **options):
    """Return the memory of a training loop with Adam; `after` is called with each loss."""
    optimizer = torch.optim.Adam(model.parameters())

    def step(_):
        loss = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after(loss)

    return watched(step, model, **options)


def kept_by(memory, holder):
    """Return what is kept by what the text names, the largest first."""
    return [one for one in memory.outliving if holder in one.tensors.holder]


def test_the_peak_is_that_of_tensors_alive_at_once():
    def step(_):
        a = torch.ones(1000)
        b = a + 1  # 8,000 bytes alive
        del a
        c = b.repeat(3)  # 16,000
        del b, c

    memory = watched(step)
    assert [one.peak - one.before for one in memory.steps[1:]] == [16_000] * 5
    assert [one.after - one.before for one in memory.steps[1:]] == [0] * 5
    last = memory.steps[-1]
    assert (last.operator, last.phase) == ("aten::repeat", "outside")
    assert last.line.startswith("test_loop_memory.py:")
    assert memory.growth == 0


def test_a_clean_training_step_leaves_nothing_and_its_states_come_in_the_first():
    model = nn.Linear(64, 32)
    parameters = (64 * 32 + 32) * F
    memory = trained(model, lambda: torch.ones(8, 64))
    first, *others = memory.steps
    assert first.parts["optimizer"] == 2 * parameters + 2 * F  # and a count of steps for each
    assert all(one.parts["optimizer"] == first.parts["optimizer"] for one in others)
    assert all(one.parts["parameters"] == parameters for one in memory.steps)
    assert len({one.after for one in others}) == 1
    assert memory.growth == 0


def test_losses_in_a_list_keep_their_graphs():
    model, losses = nn.Sequential(nn.Linear(16, 256), nn.Sigmoid(), nn.Linear(256, 4)), []

    def step(_):
        losses.append(model(torch.ones(32, 16)).sum())

    memory = watched(step, model)
    assert memory.growth >= 32 * 256 * F
    by_graph = [one for one in kept_by(memory, "losses[…] (list of 6)") if one.by_graph]
    (sigmoid,) = (one for one in by_graph if one.tensors.name == "1")
    assert sigmoid.growth == 32 * 256 * F
    assert sigmoid.steps == (1, 2, 3, 4, 5, 6)
    assert sigmoid.tensors.operator == "aten::sigmoid"
    assert sigmoid.tensors.phase == "forward"
    (loss,) = (one for one in kept_by(memory, "losses") if one.tensors.operator == "aten::sum")
    assert (loss.growth, loss.by_graph) == (F, False)


def test_losses_without_a_graph_are_numbers():
    model, losses = nn.Linear(16, 256), []
    memory = trained(
        model, lambda: torch.ones(32, 16), after=lambda loss: losses.append(loss.detach())
    )
    assert memory.growth == F
    assert kept_by(memory, "losses")[0].growth == F


def test_two_graphs_at_once_are_earlier_memory_at_the_peak():
    model, held = nn.Sequential(nn.Linear(16, 256), nn.Sigmoid()), {}

    def step(_):
        held["output"] = model(torch.ones(32, 16))  # the last one's graph lives until now

    memory = watched(step, model)
    assert memory.growth == 0
    assert all(one.earlier >= 32 * 256 * F for one in memory.steps[1:])
    assert kept_by(memory, "held['output']")


class Cached(nn.Module):
    """Keeps a mask for each length."""

    def __init__(self):
        super().__init__()
        self.linear, self.masks = nn.Linear(8, 8), {}

    def forward(self, x):
        if len(x) not in self.masks:
            self.masks[len(x)] = torch.ones(len(x), len(x))
        return self.linear(x)


def test_a_cache_by_shape_is_named_and_ends_growing():
    model, lengths = Cached(), itertools.count(100)

    def step(_):
        with torch.no_grad():
            model(torch.ones(next(lengths), 8))

    growing = watched(step, model)
    (masks,) = kept_by(growing, "masks")
    # Steps 2 to 5 made masks of 101² to 104² floats.
    assert masks.growth == round(F * sum(n * n for n in range(101, 105)) / 4)
    assert "Cached.masks[10" in masks.tensors.holder
    lengths = itertools.repeat(7)
    steady = watched(step, model)
    assert steady.growth == 0


def test_a_hook_that_keeps_activations_is_named():
    model, kept = nn.Sequential(nn.Linear(16, 64), nn.ReLU()), []
    model[1].register_forward_hook(lambda _module, _inputs, output: kept.append(output.detach()))
    memory = trained(model, lambda: torch.ones(8, 16))
    (one,) = (one for one in kept_by(memory, "kept[…]") if one.tensors.size > 1000)
    assert one.growth == 8 * 64 * F
    assert one.tensors.name == "1"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(torch.sigmoid(self.wide(x)))


class Net(nn.Module):
    """Blocks in checkpoints, one each or one for all, and a head."""

    def __init__(self, how, *, width=32, head=4, blocks=4):
        super().__init__()
        self.how = how
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width, head)

    def forward(self, x):
        if self.how == "whole":
            return self.head(checkpoint(self.blocks, x, use_reentrant=False))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.how == "reentrant")
        return self.head(x)


@pytest.mark.parametrize(
    ("how", "batch", "head", "segments", "dominant"),
    [
        ("whole", 512, 4, 1, "one segment"),
        ("each", 512, 4, 4, "segment"),
        ("reentrant", 512, 4, 4, "segment"),
        ("each", 512, 2000, 4, "outside"),
        ("each", 1, 4, 4, "states"),
        ("hooked", 512, 4, 4, "inside"),
    ],
)
def test_why_checkpoints_do_not_help(how, batch, head, segments, dominant):
    model, kept = Net(how, head=head), {}
    if how == "hooked":
        for block in model.blocks:
            block.wide.register_forward_hook(
                lambda module, _inputs, output: kept.setdefault((id(module), len(kept)), output)
            )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_):
        kept.clear()
        loss = model(torch.ones(batch, 32, requires_grad=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    memory = watched(step, model, steps=3, total=3)
    again = memory.recomputation
    assert (again.segments, again.dominant) == (segments, dominant)
    assert again.size <= memory.steps[memory.peak_step - 1].peak
    assert again.largest * segments >= again.total


def test_without_checkpoints_nothing_is_said_of_them():
    assert trained(nn.Linear(4, 4), lambda: torch.ones(2, 4)).recomputation is None


def test_skipped_steps_have_no_memory_and_what_was_there_is_named_so():
    old = [torch.ones(500)]
    memory = watched(lambda _: torch.ones(10), steps=2, skip=3)
    assert [one.number for one in memory.steps] == [4, 5]
    assert kept_by(memory, "old[…] (list of 1)")[0].tensors.phase == "before"
    assert len(old) == 1


def test_an_allocator_s_peak_is_told_where_it_is_new():
    class Cuda:
        peak = 100

        def max_memory_allocated(self, _device):
            return self.peak

    cuda = Cuda()
    assert new_peak("cuda:0", [], cuda) == 100
    assert new_peak("cuda:0", [100], cuda) is None
    cuda.peak = 120
    assert new_peak("cuda:0", [100, None], cuda) == 120
    assert new_peak("cpu", [], cuda) is None


def test_a_search_that_fails_ends_the_watching_and_not_the_loop(monkeypatch):
    def fail(_objects):
        raise RuntimeError("No objects.")

    monkeypatch.setattr(loop_memory, "holders", fail)
    with tg.timeline(memory=True) as run:
        for _ in range(3):
            torch.ones(4)
            run.step()
    (warning,) = (one for one in run.record.all_warnings if one.id == "memory-unwatched")
    assert warning.cause == "No objects."
    assert run.record.count == 3


def test_a_mode_of_the_program_is_not_taken_off():
    from torch.utils.flop_counter import FlopCounterMode

    def step(_):
        with FlopCounterMode(display=False):
            torch.ones(4) + 1

    assert watched(step).growth == 0


def test_a_loop_inside_a_mode_is_said_to_be_unwatched():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False), tg.timeline(memory=True) as run:
        for _ in range(3):
            torch.ones(4)
            run.step()
    assert run.record.memory is None
    assert "memory-unwatched" in [warning.id for warning in run.record.all_warnings]


def test_the_report_names_growth_holder_and_steps(tmp_path):
    model, losses = nn.Sequential(nn.Linear(16, 256), nn.Sigmoid(), nn.Linear(256, 4)), []

    def step(_):
        losses.append(model(torch.ones(32, 16)).sum())

    with tg.timeline(model, memory=True) as run:
        for number in range(9):
            step(number)
            run.step()
    text = str(run.record)
    assert "grows by" in text
    assert "graph of losses" in text
    assert "Alive at the peak of step 8" in text
    assert len(text.splitlines()) < 50
    assert tg.load(run.save(tmp_path / "loop.json")).memory == run.record.memory
