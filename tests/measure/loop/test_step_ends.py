"""Where steps end: of which thread, and never inside of a backward pass."""

import contextlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import torchgauge as tg
from torchgauge.errors import MeasurementError
from torchgauge.measure.loop import loop_steps
from torchgauge.measure.recording.recording import Recorder

LONG = 24


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model, optimizer, steps=LONG):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.fixture
def places(monkeypatch):
    """Return where recordings begin and end: (thread, in a backward pass)."""
    seen = []

    class Watched(loop_steps.Recorder):
        def start(self):
            seen.append((threading.current_thread(), torch._C._current_graph_task_id() != -1))
            super().start()

        def stop(self):
            seen.append((threading.current_thread(), torch._C._current_graph_task_id() != -1))
            super().stop()

    monkeypatch.setattr(loop_steps, "Recorder", Watched)
    return seen


def test_an_optimizer_that_steps_in_backward_ends_steps_after_it(places):
    model = net()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, one=optimizer: one.step())
    with tg.timeline(model) as run:
        for _ in range(LONG):
            model(torch.ones(4, 8)).sum().backward()
    assert (run.record.count, run.captured.recorded) == (LONG, 5)
    assert set(places) == {(threading.main_thread(), False)}
    phases = {node.row.phase for node in run.tree.root.walk() if "SGD.step" in node.name}
    assert phases == {"optimizer"}
    times = run.record.step_times
    assert min(times.optimizer) > 0


def test_several_steps_in_one_backward_are_one(places):
    model = net()
    optimizer = sgd(model)
    for layer in (model[0], model[2]):
        layer.register_full_backward_hook(lambda *_: optimizer.step())
    with tg.timeline(model) as run:
        for _ in range(LONG):
            model(torch.ones(4, 8)).sum().backward()
    assert (run.record.count, run.captured.recorded) == (LONG, 5)
    assert not any(in_backward for _, in_backward in places)


def test_a_checkpoint_that_runs_again_is_no_call_of_the_loop():
    first, last = nn.Linear(8, 16), nn.Linear(16, 4)
    with tg.timeline() as run:
        for _ in range(LONG):
            x = torch.ones(4, 8, requires_grad=True)
            hidden = torch.utils.checkpoint.checkpoint(first, x, use_reentrant=True)
            last(hidden).sum().backward()
    assert (run.record.by, run.record.count) == ("call", LONG)


def test_the_optimizer_s_thread_is_the_loop_s(places):
    frozen, head = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2)
    optimizer = sgd(head)
    with ThreadPoolExecutor(2) as pool, tg.timeline() as run:
        for _ in range(LONG):
            features = sum(pool.map(frozen, [torch.ones(4, 8)] * 2))
            optimizer.zero_grad()
            head(features).sum().backward()
            optimizer.step()
    assert (run.record.by, run.record.count, run.captured.recorded) == ("optimizer", LONG, 5)
    assert {thread for thread, _ in places} == {threading.main_thread()}


@pytest.mark.parametrize("calls", [3, 5, 8])
def test_a_recording_of_a_thread_that_the_loop_leaves_ends_on_that_thread(calls, places):
    frozen, head = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2)
    with ThreadPoolExecutor(1) as pool, tg.timeline() as run:
        for _ in range(calls):
            pool.submit(frozen, torch.ones(4, 8)).result()
        optimizer = sgd(head)
        train(head, optimizer, 3)
        pool.submit(frozen, torch.ones(4, 8)).result()
        train(head, optimizer)
    assert (run.record.count, run.captured.recorded) == (LONG + 3, 5)
    begins, ends = places[::2], places[1::2]
    assert begins == ends
    assert not [warning for warning in run.warnings if warning.failed]


def test_steps_of_many_threads_are_counted_and_not_recorded(places):
    model = net()
    optimizer = sgd(model)
    with tg.timeline(model) as run:
        for _ in range(LONG):
            thread = threading.Thread(target=train, args=(model, optimizer, 1))
            thread.start()
            thread.join()
    assert (run.record.count, run.captured.recorded, places) == (LONG, 0, [])
    assert run.captured.reason == "the steps are of many threads"
    (warning,) = run.warnings
    assert warning.id == "loop-not-recorded"
    assert "one thread" in warning.cause


@pytest.mark.parametrize("skip", [0, 2])
def test_a_thread_that_ends_amid_a_recording_is_a_warning(skip):
    model = net()
    optimizer = sgd(model)
    with tg.timeline(model, schedule=tg.Schedule(skip=skip)) as run:
        for _ in range(6):
            thread = threading.Thread(target=train, args=(model, optimizer, 4))
            thread.start()
            thread.join()
    assert run.record.count == LONG
    assert not torch._C._autograd._profiler_enabled()


def test_a_recording_that_began_in_a_backward_pass_is_lost_and_another_may_begin():
    weight, lost, next_one = torch.ones(2, requires_grad=True), Recorder(), Recorder()
    doubled = weight * 2
    doubled.register_hook(lambda _gradient: lost.start())
    doubled.sum().backward()
    with pytest.raises(MeasurementError) as error:
        lost.stop()
    assert error.value.id == "recording-failed"
    next_one.start()
    assert torch._C._autograd._profiler_enabled()
    next_one.stop()


def test_a_step_that_a_scaler_leaves_out_is_a_step():
    model = net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=4.0)
    with tg.timeline(model) as run:
        for number in range(LONG):
            factor = float("inf") if number % 3 == 0 else 1.0
            scaler.scale(model(torch.ones(4, 8)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert (run.record.by, run.record.count, run.captured.recorded) == ("optimizer", LONG, 5)
    assert run.tree.find("0").calls == 1
    assert "step" in vars(torch.amp.GradScaler)
    assert torch.amp.GradScaler.step.__module__ == "torch.amp.grad_scaler"
    assert not hasattr(torch.amp.GradScaler.step, "__wrapped__")


@pytest.mark.thorough
def test_a_compiled_function_that_steps_is_compiled_as_without_a_timeline():
    def graphs(**watched):
        counter, model = CompileCounter(), net()
        optimizer = sgd(model)
        update = torch.compile(lambda: optimizer.step(), backend=counter)
        torch._dynamo.reset()
        with tg.timeline(model, **watched) if watched else contextlib.nullcontext() as run:
            for _ in range(LONG):
                model(torch.ones(4, 8)).sum().backward()
                update()
        return counter.frame_count, run

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Dynamo (does not know|detected)")
        bare, _ = graphs()
        watched, run = graphs(schedule=tg.Schedule())
    assert watched == bare
    assert (run.record.by, run.record.count, run.captured.recorded) == ("optimizer", LONG, 5)
