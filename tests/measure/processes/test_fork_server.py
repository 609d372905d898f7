"""Processes forked from one that has imported torch: as many at once as a block needs."""

import os
import signal
import sys
import time

import psutil
import pytest

from torchgauge.errors import MeasurementError
from torchgauge.measure.advice.facts import facts_sent
from torchgauge.measure.latency.blocks import Pace, block
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.fork_server import forking
from torchgauge.measure.processes.processes import ask
from torchgauge.measure.processes.waiting_process import Build, Question, waiting
from torchgauge.records.target import Facts
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.source import Source

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone"),
    pytest.mark.thorough,
]

QUESTION = Question(0.0, 1)
QUICK = Pace(rounds=2, seconds=0.01, calls=2, layer_rounds=0)


@pytest.fixture(scope="module")
def server():
    with forking() as found:
        assert found is not None
        assert found.ready(120.0)
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_left(server):
    yield
    assert psutil.Process(server._process.pid).children(recursive=True) == []


def build(call, *arguments, **rest):
    return Build(Source.of_object(call, arguments), LatencyOptions(), **rest)


def parents_of(file):
    return [int(line) for line in file.read_text().split()]


def telling(file):
    """Return a call that writes the parent of its process to a file."""

    def call():
        with file.open("a") as lines:
            lines.write(f"{os.getppid()}\n")

    return call


@pytest.mark.slow
def test_several_forked_processes_wait_beside_each_other(server, tmp_path):
    with (
        waiting(build(time.sleep, 0.01), tmp_path / "a", server=server) as short,
        waiting(build(time.sleep, 0.03), tmp_path / "b", server=server) as long,
    ):
        assert short.ready().step < long.ready().step
        assert len(psutil.Process(server._process.pid).children()) == 2
        for _ in range(3):
            times = [one.ask(QUESTION).figures["latency"] for one in (short, long)]
            assert times[0] >= 0.01
            assert times[1] >= 0.03


@pytest.mark.slow
def test_a_block_is_forked_where_both_sides_can_be(server, tmp_path):
    both, fresh = tmp_path / "both", tmp_path / "fresh"
    block(build(telling(both)), build(telling(both)), QUICK, server=server)
    assert set(parents_of(both)) == {server._process.pid}

    variables = {"TORCHGAUGE_TEST": "1"}
    sides = build(telling(fresh)), build(telling(fresh), variables=variables)
    block(*sides, QUICK, server=server)
    assert set(parents_of(fresh)) == {os.getpid()}


def test_a_home_of_its_own_is_not_forked_into(server):
    assert server.serves(None, {})
    assert not server.serves(Home.current(), {})
    assert not server.serves(None, {"A": "1"})


@pytest.mark.slow
def test_variables_of_the_server_are_those_of_what_it_forks(tmp_path):
    def call():
        assert os.environ["TORCHGAUGE_TEST"] == "yes"

    variables = {"TORCHGAUGE_TEST": "yes"}
    with forking(variables=variables) as other:
        block(
            build(call, variables=variables), build(call, variables=variables), QUICK, server=other
        )


def test_a_forked_process_does_other_work_too(server, tmp_path):
    file = tmp_path / "parents"
    answer, interrupted = ask(
        facts_sent, Facts, Source.of_object(telling(file), ()), LatencyOptions(), server=server
    )
    assert not interrupted
    assert isinstance(answer, Facts)
    assert set(parents_of(file)) == {server._process.pid}


@pytest.mark.slow
def test_a_signal_that_ends_the_server_as_well_is_ctrl_c():
    """As where a job is cancelled: all its processes get SIGTERM, and this one takes it so."""
    process = os.getpid()

    def cancel():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # which it gets in its turn
        os.kill(process, signal.SIGINT)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    with forking() as own_server:
        assert own_server.ready(120.0)
        of = Source.of_object(cancel, ())
        with pytest.raises(KeyboardInterrupt):
            ask(facts_sent, Facts, of, LatencyOptions(), server=own_server)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def ended():
    print("it was me", file=sys.stderr)
    os._exit(3)


def raising():
    raise ValueError("it was me")


def with_its_group():
    os.killpg(os.getpgrp(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("call", "id", "cause"),
    [
        (killed, "child-killed", "Signal 9"),
        (with_its_group, "child-killed", "Signal 9"),
        (ended, "child-failed", "Exit code 3. it was me"),
        (raising, "forward-raised", "ValueError: it was me"),
    ],
)
def test_a_forked_process_that_dies_is_named_and_the_server_goes_on(
    server, tmp_path, call, id, cause
):
    with (
        waiting(build(call, label="base"), tmp_path / "a", server=server) as one,
        pytest.raises(MeasurementError) as caught,
    ):
        one.ready()
    assert caught.value.id == id
    assert caught.value.message.startswith("The base build: ")
    assert cause in caught.value.cause
    with waiting(build(time.sleep, 0.0), tmp_path / "b", server=server) as one:
        assert one.ask(QUESTION).figures["latency"] > 0


def test_what_the_model_prints_and_reads_is_not_the_protocol(server, tmp_path):
    def call():
        print("noise", flush=True)
        os.write(1, b"more noise\n")
        assert os.read(0, 100) == b""

    with waiting(build(call), tmp_path / "a", server=server) as one:
        assert one.ask(QUESTION).figures["latency"] > 0


def test_children_of_a_forked_process_are_its_own(server, tmp_path):
    def call():
        import subprocess

        assert subprocess.run(["sh", "-c", "exit 7"], check=False).returncode == 7

    with waiting(build(call), tmp_path / "a", server=server) as one:
        assert one.ask(QUESTION).figures["latency"] > 0


def test_a_process_that_takes_too_long_is_killed(server, tmp_path):
    with (
        waiting(build(time.sleep, 60.0), tmp_path / "a", server=server) as one,
        pytest.raises(MeasurementError) as caught,
    ):
        one.ready(0.5)
    assert caught.value.id == "child-timeout"


@pytest.mark.slow
def test_a_server_that_dies_is_an_error_of_those_who_wait(tmp_path):
    with forking() as other:
        with waiting(build(time.sleep, 0.0), tmp_path / "a", server=other) as one:
            one.ready()
            other._process.kill()
            other._process.wait()  # what it has forked has got its signal by then
            with pytest.raises(MeasurementError) as caught:
                one.ask(QUESTION)
        assert caught.value.id in ("child-failed", "child-killed")
