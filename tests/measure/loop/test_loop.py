"""The timeline of a loop that this test writes as users do."""

import ast
import collections
import contextlib
import gc
import queue
import statistics
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import torchgauge as tg
from torchgauge import units
from torchgauge.analyze.timeline.residual import StampCost
from torchgauge.measure.loop import loop_record, loop_steps, mark
from torchgauge.measure.loop.schedule import CLOCKED, PAUSED, SETTLED, STAMPED, TURNS
from torchgauge.records import codec
from torchgauge.records.timeline.node import base_name

LONG = 40


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def train(model, steps=LONG, each=lambda: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        each()
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()


def infer(model, steps=LONG):
    model.eval()
    with torch.inference_mode():
        for _ in range(steps):
            model(torch.ones(4, 8))


def phases(run):
    return [(one.phase, len(one.durations)) for one in run.record.stretches]


def bucket(run, name):
    return next(n for n in run.tree.root.children if n.kind == "bucket" and n.name == name)


def names(node):
    return {base_name(one.name) for one in node.walk() if one.kind == "operator"}


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was():
    call = nn.Module.__call__
    yield
    assert nn.Module.__call__ is call
    assert not _global_optimizer_post_hooks
    assert not torch.autograd.profiler._is_profiler_enabled
    assert not torch._C._autograd._profiler_enabled()
    assert mark._naming is None


@pytest.mark.parametrize(
    ("schedule", "recorded"),
    [
        (tg.Schedule(), 5),
        (tg.Schedule(skip=0, warmup=1, record=1), 1),
        pytest.param(tg.Schedule(skip=3, warmup=4, record=7), 7, marks=pytest.mark.thorough),
        (tg.Schedule(skip=1, warmup=2, record=3, repeat=3), 9),
        (tg.Schedule(skip=30, warmup=1, record=20), LONG - 32),
    ],
)
@pytest.mark.parametrize("loop", [train, infer])
def test_as_many_steps_are_recorded_as_the_schedule_says(schedule, recorded, loop):
    model = Net()
    with tg.timeline(model, schedule=schedule) as run:
        loop(model)
    assert run.captured.recorded == recorded
    assert (run.captured.reason == "") == (recorded == schedule.requested_steps)
    assert run.record.count == len(run.steps) == LONG
    assert run.record.by == ("optimizer" if loop is train else "call")
    assert sum(count for phase, count in phases(run) if phase == "record") == recorded
    assert {node.calls for node in run.tree.match("*")} == {1}


def test_the_steps_of_a_loop_follow_one_another():
    model = Net()
    with tg.timeline(model) as run:
        train(model)
    assert phases(run) == [
        ("bare", 1),
        ("ready", 1),
        ("estimate", 1),
        ("ready", 1),
        ("warmup", 1),
        ("record", 5),
        ("settle", 1),
        ("stamp", STAMPED),
        ("bare", LONG - STAMPED - 11),
    ]
    stamps, recording = run.tree.passes
    assert (stamps.steps, recording.steps) == (STAMPED, 5)
    assert recording.bare == run.record.bare
    interval = recording.bare_interval  # none where steps resemble their neighbours too much
    assert interval is None or interval.low <= recording.bare <= interval.high


LONGER = 21 + SETTLED + TURNS * (PAUSED + CLOCKED)


@pytest.mark.parametrize("loop", [train, infer])
def test_the_clocks_are_left_out_of_some_steps_by_turns_and_their_cost_is_told(loop):
    model = Net()
    with tg.timeline(model) as run:
        loop(model, LONGER)
    record = run.record
    assert phases(run)[8:] == [
        ("bare", SETTLED),
        *[("paused", PAUSED), ("bare", CLOCKED)] * TURNS,
        # The last step of the loop has begun another stretch, if any.
    ]
    paused = {
        number
        for number, phase in enumerate(
            (phase for phase, count in phases(run) for _ in range(count)), start=1
        )
        if phase == "paused"
    }
    assert paused.isdisjoint(record.step_times.steps)
    assert max(record.step_times.steps) == LONGER
    for kind in ("forward", *(["backward", "optimizer"] if loop is train else [])):
        assert min(record.step_times.seconds(kind)) > 0
    cost = record.measuring_cost
    assert cost is None or cost.low < cost.high
    text = " ".join(str(run).split())
    assert ("without, which are but counted" in text) == (cost is not None)


def test_what_the_clocks_cost_is_unknown_of_a_short_loop():
    model = Net()
    with tg.timeline(model) as run:
        train(model)
    assert run.record.measuring_cost is None
    assert "too few independent steps" in " ".join(str(run).split())


def test_where_steps_end_differently_all_of_a_sudden_the_clocks_are_back():
    model = Net()
    with tg.timeline(model) as run:
        infer(model, 21 + SETTLED + PAUSED - 1)  # while they pause
        train(model, 60)
    assert run.record.by == "optimizer"
    assert min(run.record.step_times.forward) > 0


def test_a_step_is_the_layers_and_what_is_in_none():
    model = Net()
    with tg.timeline(model) as run:
        train(model)
    root = run.tree.root
    assert [node.row.path for node in root.layers] == ["first", "last"]
    assert "aten::addmm" in names(run.tree.find("first"))
    assert "AddmmBackward0" in names(run.tree.find("last"))
    assert any("SGD.step" in node.name for node in bucket(run, "optimizer").children)
    assert root.total("host") == sum(row.host for row in run.tree.rows)
    # Stamped layers are shorter than recorded ones: only what is not scaled can be compared.
    # The range of a recorded step begins before the clock is read and ends after it, some 20 µs.
    recorded = [d for one in run.record.stretches if one.phase == "record" for d in one.durations]
    assert min(recorded) < root.host_time < 1.2 * max(recorded)


def test_marks_name_parts_of_the_loop_whatever_their_name():
    model = Net()

    def load():
        with tg.mark('da"tä\\'):
            torch.ones(3).sort()
            with tg.mark("inner"):
                time.sleep(0.002)
        with tg.mark("inner"):
            torch.ones(3).cumsum(0)

    with tg.timeline(model, schedule=tg.Schedule(skip=1, warmup=2, record=3, repeat=2)) as run:
        train(model, each=load)
    outer, inner = bucket(run, 'da"tä\\'), bucket(run, "inner")
    assert (outer.calls, inner.calls) == (1, 2)
    assert inner.host_time > 0.002
    assert {"aten::sort", "aten::cumsum"} & names(outer) == {"aten::sort"}
    assert {"aten::sort", "aten::cumsum"} & names(inner) == {"aten::cumsum"}
    assert not names(bucket(run, "outside the model")) & {"aten::sort", "aten::cumsum"}


def test_a_mark_around_layers_leaves_them_theirs():
    model = Net()
    with tg.timeline(model) as run, torch.no_grad():
        for _ in range(10):
            with tg.mark("all"):
                model(torch.ones(4, 8))
            run.step()
    assert "aten::addmm" in names(run.tree.find("first"))
    assert "aten::addmm" not in names(bucket(run, "all"))


def test_a_mark_in_a_layer_is_named_there():
    class Marked(Net):
        def forward(self, x):
            with tg.mark("head"):
                return super().forward(x)

    model = Marked()
    with tg.timeline(model) as run:
        infer(model, 10)
    assert "head" in names(run.tree.root)
    assert all(node.name != "head" for node in run.tree.root.children if node.kind == "bucket")


def test_a_mark_is_a_decorator_and_does_nothing_without_a_timeline():
    @tg.mark("fib")
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(7) == 13


def test_the_loop_s_own_word_ends_the_guessing():
    model = Net()
    with tg.timeline(model) as run:
        for _ in range(20):
            model(torch.ones(4, 8)).sum().backward()
            train(model, 2)
            run.step()
    assert run.record.by == "explicit"
    assert run.record.count == 20
    assert run.captured.recorded == 5
    assert run.tree.find("first").calls == 3


def test_accumulated_gradients_are_one_step():
    model, x = Net(), torch.ones(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.timeline(model) as run:
        for _ in range(12):
            for _ in range(8):
                model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert (run.record.count, run.tree.find("last").calls) == (12, 8)
    assert (run.record.batch, run.record.samples) == (4, 32)
    assert not [warning for warning in run.warnings if warning.failed]


def test_a_check_before_training_is_no_step_of_it():
    model = Net()
    with tg.timeline(model) as run:
        infer(model, 12)
        model.train()
        train(model, 20)
    assert (run.record.by, run.record.count) == ("optimizer", 20)
    assert "AddmmBackward0" in names(run.tree.find("last"))


def test_where_a_check_has_another_batch_the_batch_is_not_known():
    model = Net()
    with tg.timeline(model) as run:
        model(torch.ones(2, 8))
        train(model, 20)
    assert run.record.by == "optimizer"
    assert (run.record.batch, run.record.samples) == (None, None)


def test_after_a_long_check_no_call_of_the_training_was_seen():
    model = Net()
    with tg.timeline(model) as run:
        infer(model, 12)
        model.train()
        train(model, 20)
    assert run.record.batch is None


def test_without_an_optimizer_calls_are_steps():
    model = Net()
    with tg.timeline(model) as run:
        for _ in range(12):
            model(torch.ones(4, 8)).sum().backward()
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad
    assert (run.record.by, run.record.count, run.captured.recorded) == ("call", 12, 5)
    assert "AddmmBackward0" in names(run.tree.find("last"))


def test_stamps_are_those_of_whole_steps():
    model = Net()
    with tg.timeline(model) as run:
        infer(model)
    assert len(run._steps.stamped) == STAMPED
    for calls in run._steps.stamped:
        assert [run._modules.table[call.module].paths[0] for call in calls] == ["first", "last", ""]
        assert calls[2].start < calls[0].start < calls[1].start


def test_a_recording_without_a_whole_step_says_nothing_of_steps():
    model = Net()
    with tg.timeline(model) as run:
        train(model, 2)
        model(torch.ones(4, 8))
    assert run.record.stretches[-1].phase == "ready"
    assert (run.captured.recorded, run.captured.events) == (0, None)


def test_of_two_optimizers_one_ends_the_step():
    model, other = Net(), Net()
    one, two = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (model, other))
    with tg.timeline([model, other]) as run:
        for _ in range(12):
            for net, optimizer in ((model, one), (other, two)):
                net(torch.ones(4, 8)).sum().backward()
                optimizer.step()
    assert run.record.count == 12
    assert {node.calls for node in run.tree.match("Net*")} == {1}
    assert {node.row.path for node in run.tree.root.layers} == {"Net", "Net#2"}
    assert run.record.roots == ("Net", "Net")


def test_without_a_model_the_outermost_modules_are_found():
    model, loss = Net(), nn.CrossEntropyLoss()
    with tg.timeline() as run, torch.no_grad():
        model.eval()
        for _ in range(10):
            loss(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long))
    assert run.record.count == 10
    assert {node.row.path for node in run.tree.root.layers} == {"Net", "CrossEntropyLoss"}
    assert run.tree.find("Net.first").calls == 1


def test_a_wrapper_around_the_model_is_no_layer():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    model = Net()
    with tg.timeline(model) as run:
        train(Wrapper(model))
    assert [node.row.path for node in run.tree.match("*")] == ["", "first", "last"]


def test_layers_have_the_times_of_the_stamps_in_a_wrapper_too(monkeypatch):
    cost = StampCost({}, 1_000.0, inside=0.2)
    monkeypatch.setattr(loop_record, "calibrated", lambda _now: cost)
    model = Net()
    with tg.timeline(model) as run:
        infer(nn.Sequential(model))
    stamped = [
        call.end - call.start
        for calls in run._steps.stamped
        for call in calls
        if run._modules.table[call.module].paths[0] == "first"
    ]
    assert len(stamped) == STAMPED
    assert run.tree.find("first").total("host") == int(statistics.median(stamped) - 200)


class Numbers(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.full((8,), float(index))


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loading_is_found_without_a_mark(workers):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.timeline(model) as run:
        for x in DataLoader(Numbers(), batch_size=2, num_workers=workers):
            model(x).sum().backward()
            optimizer.step()
    assert run.record.count == 20
    loading = bucket(run, "data loading")
    assert loading.calls == 1
    assert loading.host_time > 0
    assert ("aten::stack" in names(loading)) == (workers == 0)


@pytest.mark.thorough
def test_a_compiled_model_compiles_no_more_than_once_for_each_wrapper():
    backend = CompileCounter()
    model = torch.compile(Net(), backend=backend)
    torch._dynamo.reset()
    with tg.timeline(model, schedule=tg.Schedule(repeat=4)) as run:
        train(model, 80)
    # As it is guessed what ends a step, with ranges, with none, with stamps.
    assert backend.frame_count <= 4
    assert run.captured.recorded == 20
    recorded = [d for one in run.record.stretches if one.phase == "record" for d in one.durations]
    assert max(recorded) < max(run.steps)
    assert any("Torch-Compiled Region" in name for name in names(run.tree.root))


def test_autocast_gradient_scaling_and_checkpointing():
    class Checkpointed(Net):
        def forward(self, x):
            return self.last(checkpoint(self.first, x, use_reentrant=False))

    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    with tg.timeline(model) as run:
        for _ in range(20):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.ones(4, 8)).float().sum()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert run.record.count == 20
    first = run.tree.find("first")
    assert any(node.row.phase == "recompute" for node in first.children)
    assert "aten::to" in names(first)
    assert "aten::_amp_update_scale_" in names(bucket(run, "outside the model"))


def test_a_thread_of_its_own_is_recorded_on_request_and_said():
    model, other = Net(), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    todo, done = queue.Queue(), queue.Queue()

    def serve():  # quiet between its turns, as torch needs it where a recording begins or ends
        with torch.inference_mode():
            while todo.get():
                with tg.mark("beside"):
                    other(torch.ones(4, 8))
                done.put(None)

    def pause():
        todo.put(True)
        time.sleep(0.0001)  # beside it
        done.get()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with tg.timeline(model, schedule=tg.Schedule(repeat=4), all_threads=True) as run:
            train(model, 120, pause)
    finally:
        todo.put(False)
        thread.join()
    assert (run.record.count, run.captured.recorded) == (120, 20)
    assert {"Sequential"} <= {node.row.path for node in run.tree.root.layers}
    assert "loop-threads" in {warning.id for warning in run.warnings}
    assert {node.calls for node in run.tree.match("first")} == {1}


def test_a_mark_that_outlives_its_recording_does_no_harm():
    model = Net()
    marks = [tg.mark(f"long {number}") for number in range(70)]
    with tg.timeline(model, schedule=tg.Schedule(repeat=6)) as run:
        for number, one in enumerate(marks):
            one.__enter__()
            train(model, 1)
            if number >= 12:
                marks[number - 12].__exit__(None, None, None)
    assert run.captured.recorded == 30


def test_a_thread_whose_calls_last_for_many_steps_does_no_harm():
    model, stop = Net(), threading.Event()

    class Slow(Net):
        def forward(self, x):
            time.sleep(0.03)
            return super().forward(x)

    def serve(slow):
        with torch.inference_mode():
            while not stop.is_set():
                slow(torch.ones(4, 8))

    threads = [threading.Thread(target=serve, args=(Slow(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with tg.timeline(model) as run:
            train(model, 60)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert (run.record.count, run.captured.recorded) == (60, 5)


def test_steps_on_a_thread_are_those_of_the_loop():
    model = Net()
    with tg.timeline(model) as run:
        thread = threading.Thread(target=infer, args=(model,))
        thread.start()
        thread.join()
    assert (run.record.count, run.captured.recorded) == (LONG, 5)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize(("after", "recorded"), [(3, 1), (7, 2), (30, 5)])
def test_what_was_recorded_before_an_error_is_kept(error, after, recorded):
    model = Net()

    def loop():
        train(model, after)
        model(torch.ones(4, 8)).sum().backward()
        raise error

    run = tg.timeline(model)
    with pytest.raises(error), run:
        loop()
    assert run.captured.recorded == recorded
    assert run.record.interrupted == (error is KeyboardInterrupt)
    assert run.tree.find("first").calls == 1


def test_an_error_in_a_layer_ends_no_step():
    class Failing(Net):
        def forward(self, x):
            if x.sum() > 40:
                raise ValueError
            return super().forward(x)

    model = Failing()
    with tg.timeline(model) as run, torch.inference_mode():
        infer(model, 9)
        with pytest.raises(ValueError):
            model(torch.full((4, 8), 9.0))
    assert run.record.count == 9


def test_a_loop_that_is_too_short_says_so():
    model = Net()
    with tg.timeline(model) as run:
        train(model, 1)
    assert run.tree is None
    assert [warning.id for warning in run.warnings] == ["loop-not-recorded"]
    assert not len(run.table())


def test_a_timeline_inside_another_is_refused():
    model = Net()
    with tg.timeline(model) as run:
        with pytest.raises(tg.InputError) as error, tg.timeline(model):
            pass
        assert error.value.id == "timeline-active"
        with pytest.raises(tg.InputError) as error:
            _ = run.tree
        assert error.value.id == "timeline-running"
        train(model)
    assert run.captured.recorded == 5


@pytest.mark.parametrize(
    ("profiler", "name"),
    [
        (torch.profiler.profile, "torch.profiler.profile"),
        (torch.autograd.profiler.profile, "torch.autograd.profiler.profile"),
    ],
)
def test_another_profiler_is_named(profiler, name):
    model = Net()
    with profiler() as other:
        with pytest.raises(tg.MeasurementError) as error, tg.timeline(model):
            pass
        assert error.value.id == "profiler-active"
        assert name in error.value.cause
        model(torch.ones(4, 8))
    assert any(event.key == "aten::addmm" for event in other.key_averages())


def test_ranges_for_other_tools_are_named():
    with (
        torch.autograd.profiler.emit_itt(),
        pytest.raises(tg.MeasurementError) as error,
        tg.timeline(),
    ):
        pass
    assert "emit_itt" in error.value.cause


def test_nsight_systems_is_a_warning(monkeypatch):
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    with tg.timeline() as run:
        infer(Net())
    assert any("Nsight Systems" in one.message for one in run.warnings)
    assert run.captured.recorded == 5


def test_a_profiler_that_the_loop_starts_is_a_warning_and_keeps_what_it_records():
    model = Net()
    with tg.timeline(model) as run:
        with torch.profiler.profile() as other:
            train(model)
        assert any(event.name == "aten::addmm" for event in other.events())
    assert run.record.count == LONG
    (warning,) = [one for one in run.warnings if one.failed]
    assert warning.id == "profiler-active"
    assert "torch.profiler.profile" in warning.cause
    assert run.captured.reason == "the recording failed"


def test_a_profiler_of_python_is_a_warning():
    import cProfile

    model, other = Net(), cProfile.Profile()
    with tg.timeline(model) as run:
        other.enable()
        train(model)
    other.disable()
    assert any("Profile" in w.message for w in run.warnings if w.id == "other-profiler")


def test_no_more_is_recorded_than_the_memory_holds():
    model = Net()
    with tg.timeline(model) as run:
        train(model, 12)
    budget = run.captured.memory * 8
    schedule = tg.Schedule(skip=1, warmup=2, record=2000)
    with tg.timeline(model, schedule=schedule, memory_budget=budget) as run:
        train(model)
    # One of them warms up, the lengths of numbers in the file vary a little.
    assert 5 <= run.captured.recorded <= 8
    assert (run.captured.requested, run.captured.reason) == (
        2000,
        "no more fit into the memory budget",
    )
    assert run.captured.memory * (run.captured.recorded + 1) <= budget


@pytest.mark.slow
@pytest.mark.parametrize("repeat", [1, 8])
def test_a_loop_of_two_thousand_steps_stays_within_its_memory(repeat):
    code = (
        "from benchmarks.loop_memory import measure\n"
        f"if __name__ == '__main__': print(measure(20, 2000, 10**8, {repeat}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = ast.literal_eval(done.stdout)
    assert found["steps"] == 2000
    assert 10 < found["recorded"] / repeat < 100
    assert 0.5 * found["budget"] < found["memory"] <= found["budget"]


def test_a_budget_for_no_second_step_leaves_the_first():
    model = Net()
    with tg.timeline(model, memory_budget=1) as run:
        train(model)
    assert run.captured.recorded == 1
    assert "loop-first-step" in {warning.id for warning in run.warnings}
    assert run.tree.find("first").calls == 1


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_the_optimizers_span_never_ends_in_another_recording(skip, monkeypatch):
    recordings, spans = [], []

    class Counted(loop_steps.Recorder):
        def start(self):
            super().start()
            recordings.append(self)

    def recording():
        return len(recordings) * torch._C._autograd._profiler_enabled()

    class Watched(torch.autograd.profiler.record_function):
        def __enter__(self):
            self.began = recording()
            return super().__enter__()

        def __exit__(self, *error):
            spans.append((self.began, recording()))
            return super().__exit__(*error)

    monkeypatch.setattr(loop_steps, "Recorder", Counted)
    monkeypatch.setattr(torch.autograd.profiler, "record_function", Watched)
    with tg.timeline(schedule=tg.Schedule(skip=skip, record=2)):
        train(Net(), 12)
    assert any(began == ended > 0 for began, ended in spans)
    # torch would write into what it has freed.
    assert not any(0 < began < ended for began, ended in spans)


def test_a_mark_that_never_ends_is_freed_with_no_recording():
    marks = [tg.mark("never ends") for _ in range(3)]
    steps = iter(range(12))

    def begin_marks():
        if next(steps) == 7:
            for span in marks:
                span.__enter__()

    with tg.timeline() as run:
        train(Net(), 12, begin_marks)
    assert run.captured.recorded
    assert all(span._span in mark._left_open for span in marks)


def test_all_that_fits_may_be_asked_for():
    model = Net()
    with tg.timeline(model, schedule=tg.Schedule(record=None)) as run:
        train(model, 50)
    assert (run.captured.requested, run.captured.recorded) == (None, 50 - 5)


@pytest.mark.parametrize(
    "wrong", [{"skip": -1}, {"warmup": 0}, {"record": 0}, {"repeat": 1.0}, {"skip": 0, "repeat": 2}]
)
def test_a_schedule_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(tg.InputError) as error:
        tg.Schedule(**wrong)
    assert error.value.id == "schedule-invalid"


@pytest.mark.parametrize(("wrong", "name"), [({"model": 3}, "not-a-module"),
                                             ({"model": [Net(), 3]}, "not-a-module"),
                                             ({"memory_budget": 0}, "budget-invalid")])  # fmt: skip
def test_what_is_no_model_or_budget_is_refused(wrong, name):
    with pytest.raises(tg.InputError) as error:
        tg.timeline(**wrong)
    assert error.value.id == name


def test_the_record_is_read_back_and_shown(tmp_path):
    model = Net()
    with tg.timeline(model) as run:
        train(model)
    path = run.save(tmp_path / "loop.json")
    record = tg.load(path)
    assert codec.encode(record) == codec.encode(run.record)
    assert record.rank is None
    assert "5 of 5 steps" in str(run)
    assert run.table("operators").columns["Name"]
    assert "first" in run.table().columns["path"]


def test_each_rank_writes_its_own_record(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = Net()
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        with tg.timeline(model) as run:
            train(model)
        assert run.save(tmp_path / "loop.json") == tmp_path / f"loop.rank{rank}.json"
    ranks = tg.load(tmp_path)
    assert [one.number for one in ranks.ranks] == [0, 1]
    assert [one.waiting for one in ranks.ranks] == [0.0, 0.0]
    assert f"rank {rank} of 2" in str(run)


def test_a_loss_module_made_in_every_step_is_one_layer():
    class WithLoss(Net):
        def forward(self, x):
            return nn.MSELoss()(super().forward(x), torch.zeros(4, 4))

    model = WithLoss()
    with tg.timeline(model) as run:
        train(model)

    losses = [node for node in run.tree.root.walk() if node.row.type == "MSELoss"]
    assert [(node.name, node.calls) for node in losses] == [("MSELoss", 1)]


def grown_count(loop):
    """By how much a loop of 400 steps raises the collector's count of new objects."""
    counts = []
    gc.collect()
    gc.disable()
    try:
        loop(lambda: counts.append(gc.get_count()[0]))
    finally:
        gc.enable()
    return counts[-1] - counts[5]  # the first steps meet what torch makes once


@pytest.mark.thorough
def test_a_long_loop_has_no_more_collections_than_without():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])

    def watched(each):
        with tg.timeline(model):
            train(model, steps=400, each=each)

    bare = grown_count(lambda each: train(model, steps=400, each=each))
    # As much as brings Python to collect once more, were it not for what stays once for all.
    assert grown_count(watched) - bare < gc.get_threshold()[0]


def collections_in(explore):
    """Return how often Python collects garbage in a loop that keeps many small containers."""
    seen, replay = [], collections.deque(maxlen=2000)
    model = Net()

    def remember():
        replay.extend([{"observation": [number], "done": (number,)} for number in range(200)])

    gc.collect()
    with explore(model):
        gc.callbacks.append(lambda phase, _: seen.append(phase))
        try:
            train(model, steps=LONGER, each=remember)
        finally:
            gc.callbacks.pop()
    return seen.count("start")


def test_a_loop_of_many_containers_is_collected_as_often_as_without():
    runs = []

    def watched(model):
        runs.append(tg.timeline(model))
        return runs[0]

    bare = collections_in(lambda _: contextlib.nullcontext())
    assert bare > 5
    assert abs(collections_in(watched) - bare) <= 2
    told = [one.calls for one in runs[0].record.host_delays if one.cause == "garbage collection"]
    assert sum(told) <= bare


def test_the_tree_s_data_loading_is_told_apart_from_its_share_of_all_steps():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.timeline(model) as run:
        for batch in DataLoader([torch.ones(8)] * LONG * 4, 4):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    record = run.record
    assert record.loading == sum(wait.share for wait in record.loader_waits)
    share = units.percent(record.loading)
    text = " ".join(str(run).split())
    assert "Here data loading is that of the recorded steps; of the " in text
    assert f" steps without a profiler it takes {share}." in text
