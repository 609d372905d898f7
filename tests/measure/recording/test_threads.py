"""Other threads: they wait to measure, and what else they do is neither counted nor disturbed."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.measure.loop.loop_modules import ExcludedThreads
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.recording.scope import observed
from torchgauge.targets.hygiene import untouched

CALL = nn.Module.__call__
SOON = 60  # seconds, of which few are needed


def small():
    """Return two layers of 64 and 32 multiplications a sample."""
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))


MACS, TRAINING_MACS = 96, 96 + 32 + 32 + 64  # the first layer's input needs no gradient


@contextlib.contextmanager
def meanwhile(*works):
    """Have a thread each repeat its work until the block ends; what one raises is raised here."""
    stop, began, failed = threading.Event(), threading.Semaphore(0), []

    def repeat(work):
        try:
            while not stop.is_set():
                work()
                began.release()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)
            began.release()

    threads = [
        threading.Thread(target=repeat, args=(work,), name=f"beside {number}")
        for number, work in enumerate(works)
    ]
    for one in threads:
        one.start()
    for _ in threads:
        began.acquire()
    try:
        yield
    finally:
        stop.set()
        for one in threads:
            one.join(SOON)
    if failed:
        raise failed[0]


def trainer():
    """Return a training step of a model that is a hundred times the small one."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()

    return step


def together(*calls):
    """Return what each call returned, all begun at once in threads of their own."""
    results, failed, barrier = {}, [], threading.Barrier(len(calls))

    def run(number, call):
        try:
            barrier.wait(SOON)
            results[number] = call()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(calls)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(SOON)
    assert not any(one.is_alive() for one in threads)
    if failed:
        raise failed[0]
    return [results[number] for number in range(len(calls))]


@pytest.mark.thorough
def test_two_threads_count_each_its_own():
    def counts():
        model, x = small(), torch.ones(1, 8)
        return [tg.count_cost(model, x, backward=n % 2 == 1).macs for n in range(10)]

    assert together(counts, counts, counts) == [[MACS, TRAINING_MACS] * 5] * 3
    assert nn.Module.__call__ is CALL


@pytest.mark.thorough
def test_two_threads_profile():
    def profiled():
        return tg.profile(
            small(), torch.ones(2, 8), iterations=5, warmup=1, detail="operators", roofs=False
        )

    profiles = together(profiled, profiled)
    assert [(one.cost.macs, one.tree.find("0").calls) for one in profiles] == [(2 * MACS, 1)] * 2
    assert [[w.id for w in one.warnings if w.failed] for one in profiles] == [[], []]
    assert nn.Module.__call__ is CALL


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, True])
def test_what_another_thread_trains_is_not_counted(backward):
    model, x = small(), torch.ones(1, 8)
    alone = tg.count_cost(model, x, backward=backward)
    with meanwhile(trainer(), trainer()):
        costs = [tg.count_cost(model, x, backward=backward) for _ in range(15)]
    assert {cost.macs for cost in costs} == {TRAINING_MACS if backward else MACS}
    assert {cost.flops for cost in costs} == {alone.flops}
    assert not any(cost.warnings for cost in costs)


def test_a_thread_that_serves_the_same_model_is_named_and_not_counted():
    model, x = small(), torch.ones(1, 8)
    with meanwhile(lambda: model(x)):
        cost = tg.count_cost(Pausing(model), x)
    assert cost.macs == MACS
    (warning,) = cost.warnings
    assert warning.id == "threads-not-counted"
    assert "beside 0" in warning.message


class Pausing(nn.Module):
    """Gives other threads time within its call."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        for _ in range(20):
            threading.Event().wait(0.005)
        return self.inner(x)


def test_work_that_a_call_hands_to_threads_of_an_older_pool_is_counted():
    class Pooled(nn.Module):
        def __init__(self, pool):
            super().__init__()
            self.inner = small()
            self.pool = [pool]

        def forward(self, x):
            return self.pool[0].submit(self.inner, x).result() + self.inner(x)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # its thread is there
        cost = tg.count_cost(Pooled(pool), torch.ones(1, 8))
    assert cost.macs == 2 * MACS
    assert cost.warnings == ()


def test_threads_that_other_threads_start_are_none_of_ours():
    threads, there, seen = OwnThreads(), threading.Event(), {}

    def ask(name):
        seen[name] = threads.owns_current()

    def ours():
        inner = threading.Thread(target=ask, args=("of ours",))
        inner.start()
        inner.join()
        ask("ours")

    def other():
        there.wait(SOON)
        inner = threading.Thread(target=ask, args=("of another",))
        inner.start()
        inner.join()
        ask("another")

    beside = threading.Thread(target=other)
    beside.start()
    start = threading.Thread.start
    with threads.tracking():
        assert threading.Thread.start is not start
        own = threading.Thread(target=ours, name="own")
        own.start()
        own.join()
        there.set()
        beside.join()
    assert threading.Thread.start is start
    assert seen == {"of ours": True, "ours": True, "of another": False, "another": False}
    assert threads.owns_current()
    assert "own" in threads.names()


class Quiet:
    """An observer that looks at nothing."""

    def enter(self, module):
        pass

    def leave(self, token):
        pass


@pytest.mark.parametrize("first", ["begins", "ends"])
def test_a_wrapper_of_another_thread_is_neither_lost_nor_kept(first):
    """What one thread wraps around, another's putting back neither takes off nor puts on again."""
    go_on, done = threading.Event(), threading.Event()

    def beside():
        with observed(Quiet()):
            done.set()
            go_on.wait(SOON)

    thread = threading.Thread(target=beside)
    if first == "ends":  # it is there when the state is saved
        thread.start()
        done.wait(SOON)
    with untouched(small()):
        if first == "begins":
            thread.start()
            done.wait(SOON)
        else:
            go_on.set()
            thread.join(SOON)
    assert (nn.Module.__call__ is CALL) is (first == "ends")
    go_on.set()
    thread.join(SOON)
    assert nn.Module.__call__ is CALL


def test_a_model_that_replaces_the_call_of_modules_is_put_right_within_a_wrapper():
    def replaced(self, *args, **kwargs):
        return CALL(self, *args, **kwargs)

    with observed(Quiet()):
        ours = nn.Module.__call__
        with untouched(small()):
            nn.Module.__call__ = replaced
        assert nn.Module.__call__ is ours
    assert nn.Module.__call__ is CALL


def test_a_timeline_in_another_thread_refuses_to_measure():
    inside, go_on, runs = threading.Event(), threading.Event(), []
    model = small()

    def loop():
        with tg.timeline(model) as run:
            for _ in range(20):
                model(torch.ones(1, 8))
            inside.set()
            go_on.wait(SOON)
        runs.append(run)

    thread = threading.Thread(target=loop)
    thread.start()
    inside.wait(SOON)
    try:
        for measure in (tg.profile, tg.count_cost, tg.measure_latency, tg.measure_memory):
            with pytest.raises(tg.InputError) as error:
                measure(small(), torch.ones(1, 8))
            assert error.value.id == "timeline-active"
        with pytest.raises(tg.InputError) as error, tg.timeline():
            pass
        assert error.value.id == "timeline-active"
    finally:
        go_on.set()
        thread.join(SOON)
    assert runs[0].captured.recorded == 5
    assert tg.count_cost(small(), torch.ones(1, 8)).macs == MACS
    assert nn.Module.__call__ is CALL


def test_a_timeline_waits_for_a_measurement():
    order = []

    class Slow(nn.Module):
        def forward(self, x):
            inside.set()
            threading.Event().wait(0.1)
            order.append("measured")
            return x

    inside = threading.Event()
    thread = threading.Thread(target=tg.count_cost, args=(Slow(), torch.ones(1)))
    thread.start()
    inside.wait(SOON)
    with tg.timeline():
        order.append("loop")
    thread.join(SOON)
    # A short call is counted more than once, and the loop begins after the last time.
    assert set(order[:-1]) == {"measured"}
    assert order[-1] == "loop"


FORK = """
import os, threading
import torch
from torch import nn
import torchgauge as tg
from torchgauge.measure.recording.scope import observed

call, inside, go_on = nn.Module.__call__, threading.Event(), threading.Event()

class Slow(nn.Module):
    def forward(self, x):
        inside.set()
        go_on.wait()
        return x

thread = threading.Thread(target=tg.count_cost, args=(Slow(), torch.ones(1)))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    fine = nn.Module.__call__ is call
    fine = fine and tg.count_cost(nn.Linear(4, 4, bias=False), torch.ones(1, 4)).macs == 16
    fine = fine and nn.Module.__call__ is call
    os._exit(0 if fine else 1)
go_on.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), nn.Module.__call__ is call)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_forked_while_another_thread_measures_is_as_if_it_did_not():
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["0", "True"]


@pytest.mark.thorough
def test_threads_of_a_step_are_named_and_recorded_on_request():
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.there, self.here = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            found = []
            thread = threading.Thread(target=lambda: found.append(self.there(x)), name="helper")
            thread.start()
            thread.join()
            return found[0] + self.here(x)

    def profiled(**options):
        return tg.profile(
            Beside(), torch.ones(4, 8), iterations=5, warmup=1, roofs=False, **options
        )

    usual = profiled()
    (warning,) = [w for w in usual.tree.warnings if w.id == "threads-unrecorded"]
    assert "helper" in warning.message
    assert "all_threads" in warning.remedy
    asked = profiled(all_threads=True)
    assert asked.tree.find("there").children
    (warning,) = [w for w in asked.tree.warnings if w.id == "threads-unrecorded"]
    assert "allocations" in warning.message
    assert "operators and" not in warning.message


def test_steps_of_another_thread_do_not_get_into_a_loop_unasked():
    model, x = small(), torch.ones(1, 8)
    other = nn.Sequential(nn.Linear(64, 64), nn.Tanh())

    def differentiate():
        other(torch.ones(4, 64)).sum().backward()

    with meanwhile(differentiate), tg.timeline(model, schedule=tg.Schedule(record=20)) as run:
        for _ in range(80):
            model(x)
            threading.Event().wait(0.001)
    assert run.captured.recorded == 20
    assert {node.calls for node in run.tree.match("0")} == {1}
    assert "Sequential" not in {node.row.path for node in run.tree.root.layers}
    (warning,) = [w for w in run.warnings if w.id == "threads-unrecorded"]
    assert "beside 0" in warning.message


def test_a_recording_whose_thread_goes_on_ends_with_its_step():
    model, x = small(), torch.ones(1, 8)

    def step():
        model(x)
        threading.Event().wait(0.01)

    with meanwhile(step), tg.timeline(model, schedule=tg.Schedule(record=None)) as run:
        for _ in range(SOON * 100):
            if run._steps.phase == "record":
                break
            threading.Event().wait(0.01)
        threading.Event().wait(0.1)
    assert run.captured.recorded > 0
    assert run.tree.find("0").calls == 1
    assert not [w for w in run.warnings if w.failed]
    assert tg.measure_memory(small(), x).peak > 0  # no profiler is left on


def test_a_recording_whose_thread_is_gone_is_said_to_be_lost():
    model, x = small(), torch.ones(1, 8)
    with tg.timeline(model, schedule=tg.Schedule(skip=1, record=50)) as run:
        thread = threading.Thread(target=lambda: [model(x) for _ in range(10)])
        thread.start()
        thread.join()
    assert "recording-failed" in {w.id for w in run.warnings}
    assert tg.measure_memory(small(), x).peak > 0


def test_a_look_at_other_threads_keeps_nothing_alive():
    class Held:
        pass

    def loop():
        held = Held()
        ExcludedThreads().look()
        return weakref.ref(held)

    gc.disable()
    try:
        assert loop()() is None
    finally:
        gc.enable()
