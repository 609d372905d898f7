"""The memory of a loop's steps, on loops of which every byte is known."""

import gc
import itertools
import threading
import weakref

import pytest
import torch
from tests.support.watched_memory import run_alone
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgauge as tg
from torchgauge.measure.loop import loop_memory
from torchgauge.measure.loop.loop_modules import LoopModules
from torchgauge.measure.memory.live_tensors import saved_for_backward
from torchgauge.measure.work.internals import modes

F = 4  # bytes of a float


@pytest.fixture(autouse=True)
def _alone(monkeypatch, request):
    run_alone(monkeypatch, request.node)


def ids_of(loop):
    return [one.id for one in loop.findings if one.id in ("kept-memory", "idle-checkpoints")]


def watched(step, model=None, **options):
    """Return the memory of a loop that calls `step` with its number."""
    return watched_loop(step, model, **options).memory


def watched_loop(step, model=None, *, steps=5, total=8, skip=1, by_optimizer=False):
    with tg.timeline(model, memory=True, schedule=tg.Schedule(skip=skip, record=steps)) as run:
        for number in range(1, total + 1):
            step(number)
            if not by_optimizer:
                run.step()
    memory = run.record.memory
    assert modes() == []
    assert sum(group.size for group in memory.at_peak) == memory.highest.peak
    assert len(memory.steps) == steps
    return run.record


def trained(model, batch, *, after=lambda _: None, **options):
    """Return the memory of a training loop with Adam; `after` is called with each loss."""
    optimizer = torch.optim.Adam(model.parameters())

    def step(_):
        loss = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after(loss)

    loop = watched_loop(step, model, by_optimizer=True, **options)
    assert ids_of(loop) == []
    return loop.memory


def kept_by(memory, holder):
    """Return what is kept by what the text names, the largest first."""
    return [one for one in memory.outliving if holder in f"{one.holder} in {one.held_in}"]


def test_the_peak_is_that_of_tensors_alive_at_once():
    def step(_):
        a = torch.ones(1000)
        b = a + 1  # 8,000 bytes alive
        del a
        c = b.repeat(3)  # 16,000
        del b, c

    memory = watched(step)
    assert [one.peak - one.after for one in memory.steps] == [16_000] * 5
    assert len({one.after for one in memory.steps}) == 1
    last = memory.steps[-1]
    assert (last.operator, last.phase) == ("aten::repeat", "outside")
    assert last.line.startswith("test_loop_memory.py:")
    assert memory.growth == 0


def test_a_clean_training_step_leaves_nothing():
    model = nn.Linear(64, 32)
    parameters = (64 * 32 + 32) * F
    memory = trained(model, lambda: torch.ones(8, 64))
    sizes = {group.part: group.size for group in memory.at_peak}
    assert sizes["optimizer"] == 2 * parameters + 2 * F  # and a count of steps for each
    assert sizes["parameters"] == sizes["gradients"] == parameters
    assert len({one.after for one in memory.steps}) == 1
    assert memory.growth == 0


def test_losses_in_a_list_keep_their_graphs():
    model, losses = nn.Sequential(nn.Linear(16, 256), nn.Sigmoid(), nn.Linear(256, 4)), []

    def step(_):
        losses.append(model(torch.ones(32, 16)).sum())

    memory = watched(step, model)
    assert memory.growth >= 32 * 256 * F
    by_graph = [one for one in kept_by(memory, "losses[1] in test_losses_") if one.by_graph]
    (sigmoid,) = (one for one in by_graph if one.layer == "1")
    assert sigmoid.growth == 32 * 256 * F
    assert sigmoid.steps == (2, 3, 4, 5, 6)
    assert sigmoid.operator == "aten::sigmoid"
    assert sigmoid.phase == "forward"
    (loss,) = (one for one in kept_by(memory, "losses") if one.operator == "aten::sum")
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

    loop = watched_loop(step, model)
    memory = loop.memory
    assert memory.growth == 0
    assert all(one.earlier >= 32 * 256 * F for one in memory.steps[1:])
    assert kept_by(memory, "held.output")
    (finding,) = (one for one in loop.findings if one.id == "kept-memory")
    assert "earlier step" in finding.title
    assert "held.output in test_two_graphs" in finding.title


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
    masks = kept_by(growing, "masks")[0]
    # Steps 2 to 5 made masks of 101² to 104² floats.
    assert masks.growth == round(F * sum(n * n for n in range(101, 105)) / 4)
    assert masks.holder == "model.masks[101]"
    lengths = itertools.repeat(7)
    steady = watched(step, model)
    assert steady.growth == 0


def test_a_hook_that_keeps_activations_is_named():
    model, kept = nn.Sequential(nn.Linear(16, 64), nn.ReLU()), []
    model[1].register_forward_hook(lambda _module, _inputs, output: kept.append(output.detach()))
    optimizer = torch.optim.SGD(model.parameters())

    def step(_):
        model(torch.ones(8, 16)).sum().backward()
        optimizer.step()

    loop = watched_loop(step, model, by_optimizer=True)
    assert ids_of(loop) == ["kept-memory"]
    (one,) = (one for one in kept_by(loop.memory, "kept[1]") if one.size > 1000)
    assert one.growth == 8 * 64 * F
    assert one.layer == "1"


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
    ("how", "batch", "head", "segments", "largest"),
    [
        ("whole", 512, 4, 1, "running segment"),
        ("each", 512, 4, 4, "running segment"),
        ("reentrant", 512, 4, 4, "running segment"),
        ("each", 512, 2000, 4, "outside of segments"),
        ("each", 1, 4, 4, "states"),
        ("hooked", 512, 4, 4, "kept in segments"),
    ],
)
def test_why_checkpoints_do_not_help(how, batch, head, segments, largest):
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

    loop = watched_loop(step, model, steps=3, total=4, by_optimizer=True)
    memory, again = loop.memory, loop.memory.checkpoints
    idle = largest != "running segment" or how == "whole"
    assert ("idle-checkpoints" in ids_of(loop)) == idle
    assert (again.segments, next(iter(again.shares))) == (segments, largest)
    assert sum(again.shares.values()) == memory.highest.peak


def test_without_checkpoints_nothing_is_said_of_them():
    assert trained(nn.Linear(4, 4), lambda: torch.ones(2, 4)).checkpoints is None


def test_skipped_steps_have_no_memory_and_what_was_there_is_named_so():
    old = [torch.ones(500)]
    memory = watched(lambda _: torch.ones(10), steps=2, skip=3)
    assert [one.number for one in memory.steps] == [4, 5]
    assert kept_by(memory, "old[0]")[0].phase == "before"
    assert len(old) == 1


def test_a_search_that_fails_ends_the_watching_and_not_the_loop(monkeypatch):
    def fail():
        raise RuntimeError("No objects.")

    monkeypatch.setattr(loop_memory, "held", fail)
    with tg.timeline(memory=True) as run:
        for _ in range(4):
            torch.ones(4)
            run.step()
    (warning,) = (one for one in run.record.all_warnings if one.id == "recording-failed")
    assert "No objects." in warning.message
    assert run.record.count == 4


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
    assert "Memory grows by" in text
    assert "graph of losses[2] in " in run.record.findings[0].title
    assert "Alive at the peak of step 7" in text
    assert len(text.splitlines()) < 50
    assert tg.load(run.save(tmp_path / "loop.json")).memory == run.record.memory


def test_micro_batches_are_of_one_step():
    model = nn.Sequential(nn.Linear(16, 256), nn.Sigmoid(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters())

    def step(_):
        for _ in range(2):
            model(torch.ones(32, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    loop = watched_loop(step, by_optimizer=True)
    assert [one.number for one in loop.memory.steps] == [2, 3, 4, 5, 6]
    assert ids_of(loop) == []
    assert {one.earlier for one in loop.memory.steps[1:]} == {0}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_loop_that_raises_keeps_what_was_measured(error):
    run = tg.timeline(memory=True, schedule=tg.Schedule(skip=1, record=5))
    call = nn.Module.__call__

    def loop():
        for number in range(5):
            torch.ones(4)
            if number == 3:
                raise error
            run.step()

    with pytest.raises(error), run:
        loop()
    assert [one.number for one in run.record.memory.steps] == [2, 3]
    assert modes() == []
    assert nn.Module.__call__ is call


def test_nothing_is_kept_by_the_watching():
    model, references = nn.Linear(4, 4), []

    def step(_):
        inputs = torch.ones(2, 4)
        references.append(weakref.ref(inputs))
        model(inputs).sum()

    gc.disable()
    try:
        watched(step, model)
        assert [reference() for reference in references] == [None] * 8
    finally:
        gc.enable()


def test_a_mode_that_the_program_enters_meanwhile_stays():
    from torch.utils.flop_counter import FlopCounterMode

    mode = FlopCounterMode(display=False)
    with tg.timeline(memory=True, schedule=tg.Schedule(skip=1, record=2)) as run:
        for number in range(5):
            if number == 2:
                mode.__enter__()
            torch.ones(4)
            run.step()
        (left,) = modes()
        assert left is not None
        mode.__exit__(None, None, None)
    assert modes() == []


def test_a_loop_of_another_thread_is_said_to_be_unwatched():
    with tg.timeline(memory=True) as run:

        def loop():
            for _ in range(4):
                torch.ones(4)
                run.step()

        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
    assert run.record.memory is None
    assert "memory-unwatched" in [warning.id for warning in run.record.all_warnings]


def test_of_a_gpu_the_allocator_is_asked_and_the_cpu_left_out(monkeypatch):
    given_out = iter((300, 400))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(given_out))
    watch = loop_memory.LoopMemoryWatch(LoopModules([]), lambda: "outside")
    with watch.watching(3):
        for number in (4, 5):
            torch.ones(100)
            watch.end_step(number)
    assert watch.memory.device == "cuda:1"
    assert [one.allocated for one in watch.memory.steps] == [300, 400]
    assert [one.peak for one in watch.memory.steps] == [0, 0]


@pytest.mark.thorough
def test_a_distributed_model_of_one_process():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
        optimizer = torch.optim.SGD(model.parameters())

        def step(_):
            model(torch.ones(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        loop = watched_loop(step, by_optimizer=True)
    finally:
        torch.distributed.destroy_process_group()
    assert ids_of(loop) == []
    assert len({one.after for one in loop.memory.steps}) == 1


def test_graphs_are_read_without_running_a_checkpoint_again():
    calls = []

    def part(x):
        calls.append(x)
        return torch.sigmoid(x).sin()

    x = torch.ones(100, requires_grad=True)
    output = checkpoint(part, x, use_reentrant=False)
    assert list(saved_for_backward([output])) == []
    assert len(calls) == 1


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept = x * 2
        ctx.save_for_backward(kept)
        return kept + 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_graphs_of_custom_functions_are_read():
    output = Doubled.apply(torch.ones(3, requires_grad=True))
    ((node, saved),) = saved_for_backward([output])
    assert saved.tolist() == [2, 2, 2]
    assert "Doubled" in node.name()
