"""Signals wait while something is put back, and are handled afterwards, each of them."""

import contextlib
import os
import signal
import threading

import pytest

from torchgauge.signals import HeldBack, restoring, run_all


class StoppedError(Exception):
    """What a handler of the user's raises."""


@pytest.fixture
def handlers():
    """Yield the signals that were handled; SIGTERM's handler raises, SIGUSR1's does not."""
    handled = []

    def stop(number, _):
        handled.append(number)
        raise StoppedError

    taken = {
        signal.SIGTERM: stop,
        signal.SIGALRM: stop,
        signal.SIGUSR1: lambda number, _: handled.append(number),
    }
    before = {number: signal.signal(number, handler) for number, handler in taken.items()}
    yield handled
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for number, handler in taken.items():
        assert signal.getsignal(number) is handler
        signal.signal(number, before[number])


RAISED = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: StoppedError,
    signal.SIGALRM: StoppedError,
}


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", RAISED)
def test_a_signal_is_raised_once_the_block_is_done(handlers, number):
    done = []
    with pytest.raises(RAISED[number]), HeldBack():  # noqa: PT012
        send(number)
        done.append("whole")
    assert done == ["whole"]


def test_every_signal_is_handled_though_the_first_raises(handlers):
    with pytest.raises(KeyboardInterrupt), HeldBack():  # noqa: PT012
        send(signal.SIGINT, signal.SIGTERM)
        send(signal.SIGUSR1)
    assert sorted(handlers) == sorted([signal.SIGTERM, signal.SIGUSR1])


def test_blocks_inside_one_another_wait_for_the_outermost(handlers):
    done = []
    with pytest.raises(KeyboardInterrupt), HeldBack():  # noqa: PT012
        with HeldBack():
            send(signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]


def test_a_handler_that_the_block_sets_stays():
    def mine(*_):
        pass

    before = signal.getsignal(signal.SIGINT)
    with HeldBack():
        signal.signal(signal.SIGINT, mine)
    assert signal.signal(signal.SIGINT, before) is mine


def test_another_thread_holds_nothing_back(handlers):
    seen = []

    def work():
        with HeldBack():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@restoring
def changed(state, sends=(), at=""):
    """Set a key; a signal comes at the named place."""
    state["key"] = "changed"
    if at == "enter":
        send(*sends)
    try:
        yield
    finally:
        if at == "exit":
            send(*sends)
        del state["key"]


@pytest.mark.parametrize("numbers", [*((one,) for one in RAISED), (signal.SIGINT, signal.SIGTERM)])
@pytest.mark.parametrize("at", ["enter", "exit"])
def test_what_was_changed_is_put_back_wherever_a_signal_comes(handlers, at, numbers):
    state, ran = {}, []
    with pytest.raises(tuple(RAISED.values())), changed(state, numbers, at):
        ran.append(state["key"])
    assert state == {}
    assert bool(ran) == (at == "exit")


def test_the_block_itself_is_interrupted_at_once():
    state, ran = {}, []
    with pytest.raises(KeyboardInterrupt), changed(state):  # noqa: PT012
        send(signal.SIGINT)
        ran.append("on")
    assert (state, ran) == ({}, [])


def test_overlapping_blocks_leave_the_handlers_as_they_were(handlers):
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(changed({}))
    second.enter_context(changed({}))
    first.close()
    second.close()  # the fixture looks at the handlers


def test_all_steps_are_run_and_an_interrupt_counts_before_an_error():
    ran = []

    def step(error):
        ran.append(error)
        if error is not None:
            raise error

    with pytest.raises(KeyboardInterrupt):
        run_all(lambda one=one: step(one) for one in (ValueError(), KeyboardInterrupt(), None))
    assert len(ran) == 3
    with pytest.raises(ValueError, match="first"):
        run_all(lambda one=one: step(one) for one in (ValueError("first"), TypeError("then")))
