"""The turn to measure: one thread at a time has it, and nothing keeps it for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from torchgauge import turn as module
from torchgauge.errors import InputError
from torchgauge.turn import Turn, turn

SOON = 20  # seconds, of which none is needed


class Told:
    """A progress that notes what it is told."""

    def __init__(self):
        self.tasks = []

    def start(self, task):
        self.tasks.append(task)


def in_thread(work, name="other"):
    thread = threading.Thread(target=work, name=name)
    thread.start()
    return thread


def ended(thread):
    thread.join(SOON)
    return not thread.is_alive()


def is_free():
    """Whether a thread that measures nothing yet gets the turn."""
    return ended(in_thread(lambda: Turn().take()))


def test_a_second_thread_waits_for_its_turn():
    order, inside, go_on = [], threading.Event(), threading.Event()

    def first():
        with turn():
            inside.set()
            go_on.wait(SOON)
            order.append("first")

    def second():
        with turn():
            order.append("second")

    threads = [in_thread(first)]
    inside.wait(SOON)
    threads.append(in_thread(second))
    assert not threads[1].join(0.05)
    assert order == []
    go_on.set()
    assert all(map(ended, threads))
    assert order == ["first", "second"]


def test_many_threads_never_measure_at_once():
    running, most = [], []

    def work():
        for _ in range(50):
            with turn(), turn():
                running.append(1)
                most.append(len(running))
                running.pop()

    threads = [in_thread(work) for _ in range(8)]
    assert all(map(ended, threads))
    assert (len(most), max(most)) == (400, 1)


def test_turns_of_one_thread_may_end_in_any_order():
    outer, inner = Turn(), Turn()
    outer.take()
    inner.take()
    outer.end()
    other = in_thread(lambda: Turn().take())
    assert not other.join(0.05)
    assert other.is_alive()
    inner.end()
    inner.end()  # once more does nothing
    assert ended(other)


def test_an_error_lets_go():
    with pytest.raises(ZeroDivisionError), turn():
        1 / 0  # noqa: B018
    assert is_free()


def test_who_waits_is_told_for_whom(monkeypatch):
    monkeypatch.setattr(module, "REPORT_DELAY", 0.0)
    told, mine = Told(), Turn()

    def wait():
        with turn(told):
            pass

    mine.take()
    waiting = in_thread(wait)
    while not told.tasks:
        assert waiting.is_alive()
    mine.end()
    assert ended(waiting)
    assert told.tasks == [f"waiting for the measurement of thread {mine.thread.name}"]


def test_the_turn_of_a_thread_that_is_gone_is_free(monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.01)
    assert ended(in_thread(lambda: Turn().take()))
    assert is_free()


def test_a_timeline_of_another_thread_refuses_at_once():
    mine = Turn(timeline=True)
    refused = []

    def measure():
        try:
            Turn().take()
        except InputError as error:
            refused.append(error)

    mine.take()
    try:
        with turn():  # its own thread may
            pass
        assert ended(in_thread(measure))
    finally:
        mine.end()
    assert [error.id for error in refused] == ["timeline-active"]
    assert threading.current_thread().name in refused[0].cause
    assert is_free()


FORK = """
import os, threading
from torchgauge.turn import Turn, turn

def waits_in_another_thread(seconds):
    thread = threading.Thread(target=lambda: Turn().take(), daemon=True)
    thread.start()
    thread.join(seconds)
    return thread.is_alive()

mine, inside = Turn(), threading.Event()
mine.take() if {mine} else None

def hold():
    Turn().take()
    inside.set()
    threading.Event().wait()

if not {mine}:
    threading.Thread(target=hold, daemon=True).start()
    inside.wait()
child = os.fork()
if child == 0:
    waits = waits_in_another_thread(10)
    mine.end()
    os._exit(waits)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), waits_in_another_thread(0.5) if {mine} else True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("mine", [True, False])
def test_a_forked_process_has_its_turn_and_its_parent_keeps_its_own(mine):
    done = subprocess.run(
        [sys.executable, "-c", FORK.format(mine=mine)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["0", "True"]


INTERRUPTED = """
import os, signal, threading, time
from torchgauge.turn import Turn, turn

inside, go_on = threading.Event(), threading.Event()

def hold():
    with turn():
        inside.set()
        go_on.wait()

threading.Thread(target=hold).start()
inside.wait()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    with turn():
        print("measured")
except KeyboardInterrupt:
    print("interrupted")
go_on.set()
with turn():
    print("measured afterwards")
"""


def test_an_interrupt_ends_the_wait():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["interrupted", "measured afterwards"]
