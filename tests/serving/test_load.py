"""Load on servers in processes of their own, whose times are named."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
import torch
from tests.support.servers.running import running
from tests.support.simulated_loads import lindley
from torch import nn

import torchgauge as tg
from torchgauge.api.servings import serving_request
from torchgauge.errors import InputError, MeasurementError
from torchgauge.records.serving.level import ClientLoad
from torchgauge.records.serving.requests import Requests
from torchgauge.serving import load
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.send import SentLoad
from torchgauge.serving.server.reference_server import reference_server
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import TargetRequest

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'decoder.py'}:decoder"


def model():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU())


@pytest.mark.thorough
def test_an_endpoint_under_load_has_its_record_and_comes_back_from_its_file(tmp_path):
    with running("fifo_server", service=0.001) as server:
        serving = tg.measure_serving(
            f"{server.address}/x", rate=[40, 80], duration=0.5, goals="p99<10s errors<50%"
        )
        arrived = len(server.log())
    assert [level.label for level in serving.levels] == ["40 requests/s", "80 requests/s"]
    assert all(set(level.requests.fate) == {"done"} for level in serving.levels)
    assert sum(len(level.requests) for level in serving.levels) == arrived
    assert (serving.served_by.kind, serving.target.kind) == ("endpoint", "endpoint")
    assert serving.served_by.address == serving.target.spec == f"{server.address}/x"
    assert serving.levels[0].server.processes == 1
    assert serving.capacity is not None
    path = tmp_path / "serving.json"
    serving.save(path)
    assert tg.load(path) == serving


@pytest.fixture
def plans(monkeypatch):
    """Have every request answered within a millisecond; returns the plans that were sent."""
    sent_plans = []

    def send(plan, progress):
        sent_plans.append(plan)
        due = plan.schedule or [index / 1000 for index in range(plan.count)]
        requests = Requests(
            scheduled=tuple(due), sent=tuple(due), first=tuple(due),
            last=tuple(time + 1e-3 for time in due), fate=("done",) * len(due),
            status=(200,) * len(due), item=(0,) * len(due),
        )  # fmt: skip
        seconds = due[-1] + 1e-3
        return SentLoad(requests=requests, client=ClientLoad(), problems={}, seconds=seconds)

    monkeypatch.setattr(load, "send", send)
    monkeypatch.setattr(Address, "require_server", lambda _: None)
    return sent_plans


def test_a_server_that_takes_no_connection_is_one_sentence():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(MeasurementError) as raised:
            tg.measure_serving(f"http://127.0.0.1:{port}/x?key=1", rate=5, duration=1)
    assert raised.value.id == "server-unreachable"
    assert raised.value.message == f"No server listens at http://127.0.0.1:{port}."


def test_errors_alone_end_the_load_with_what_the_server_says():
    with running("faulty_server") as server:
        serving = tg.measure_serving(f"{server.address}/status/401", rate=[200, 300], duration=5)
    (level,) = serving.levels
    assert len(level.requests) < 100
    assert level.error_statuses.keys() == {401}
    (warning,) = level.warnings
    assert (warning.id, warning.failed) == ("requests-status", True)
    assert warning.cause == '{"error": {"message": "as asked"}}'
    assert "--bearer-env" in serving.findings[0].remedy
    assert not serving.complete


NOWHERE = "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("settings", "last"), [({}, 300.0), ({"duration": 60.0}, 59.0), ({"requests": 11}, 10.0)]
)
def test_a_recorded_schedule_is_played_to_its_end(plans, tmp_path, settings, last):
    (tmp_path / "day.txt").write_text("\n".join(map(str, range(301))))
    serving = tg.measure_serving(NOWHERE, arrivals=str(tmp_path / "day.txt"), **settings)
    (plan,), (level,) = plans, serving.levels
    assert plan.schedule[-1] == level.duration == last
    assert level.label == "arrivals of day.txt"


def test_a_recorded_schedule_of_days_is_not_cut_silently(plans, tmp_path):
    (tmp_path / "days.txt").write_text("0\n90000\n")
    with pytest.raises(InputError) as raised:
        tg.measure_serving(NOWHERE, arrivals=str(tmp_path / "days.txt"))
    assert raised.value.id == "arrivals-invalid"
    assert plans == []


def test_requests_that_wait_for_each_other_end_a_level_when_they_are_answered(plans):
    serving = tg.measure_serving(NOWHERE, scenario="single-stream", requests=5000)
    (plan,), (level,) = plans, serving.levels
    assert (plan.duration, plan.count) == (24 * 3600, 5000)
    assert level.duration == pytest.approx(5.0)
    assert level.count == pytest.approx(4500, abs=2)


@pytest.mark.thorough
@pytest.mark.parametrize("rate", [0.1, 1.0, 1000.0])
def test_a_number_of_requests_is_sent_whole(plans, rate):
    """By chance they take longer than that many at this rate do."""
    for seed in range(20):
        tg.measure_serving(NOWHERE, rate=rate, requests=5, arrivals="gamma:5", seed=seed)
    assert {len(plan.schedule) for plan in plans} == {5}


@pytest.mark.parametrize("settings", [{"rate": 10}, {"scenario": "multi-stream"}])
def test_a_single_request_is_a_level(plans, settings):
    (level,) = tg.measure_serving(NOWHERE, requests=1, **settings).levels
    assert level.fates == {"done": 1}
    assert level.latency.mean.value == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("settings", "drain", "timeout"),
    [
        ({}, 10, 60),
        ({"duration": 300}, 300, 300),
        ({"duration": 300, "timeout": 5}, 300, 5),
        ({"requests": 4}, 24 * 3600, 60),
    ],
)
def test_the_time_of_an_offline_load_at_a_url_ends_it(plans, settings, drain, timeout):
    serving = tg.measure_serving(NOWHERE, scenario="offline", **settings)
    (plan,), (level,) = plans, serving.levels
    assert (plan.drain, plan.timeout, plan.timeout_from_sent) == (drain, timeout, True)
    assert level.duration == pytest.approx(1e-3)


@pytest.mark.slow
def test_a_search_begins_where_answers_take_longer_than_its_probe(plans, monkeypatch):
    """32 users get an answer each, after 2.5 s: 12.8 requests/s."""
    answered = load.send

    def send(plan, progress):
        is_probe = plan.schedule is None
        if is_probe:
            plan = dataclasses.replace(plan, count=32, schedule=[0.0] * 32)
        sent = answered(plan, progress)
        last = tuple(time + 2.5 for time in sent.requests.scheduled)
        requests = msgspec.structs.replace(sent.requests, last=last)
        return dataclasses.replace(sent, requests=requests, seconds=2.5 if is_probe else 10.0)

    monkeypatch.setattr(load, "send", send)
    monkeypatch.setattr(load.time, "sleep", lambda seconds: None)
    levels = tg.measure_serving(NOWHERE, rate="auto", goals="p50<10s", duration=10.0).levels
    assert levels[0].left_out == "probe"
    assert levels[1].arrivals.rate == pytest.approx(0.6 * 12.8)


def test_a_search_says_which_levels_it_does_not_count(plans, monkeypatch):
    """Each level takes as long as its schedule, by a clock that is moved on."""
    clock = types.SimpleNamespace(now=0.0)
    clock.monotonic, clock.sleep = lambda: clock.now, lambda seconds: None
    monkeypatch.setattr(load, "time", clock)
    answered = load.send

    def send(plan, progress):
        if plan.schedule is None:  # the probe: 100 requests a second
            plan = dataclasses.replace(plan, count=200)
        sent = answered(plan, progress)
        clock.now += sent.seconds
        # Quick up to 7 requests a second, which is far below the probe's.
        due = sent.requests.scheduled
        wait = 1e-3 if len(due) / due[-1] < 7 else 2.0
        last = tuple(time + wait for time in due)
        return dataclasses.replace(sent, requests=msgspec.structs.replace(sent.requests, last=last))

    monkeypatch.setattr(load, "send", send)
    serving = tg.measure_serving(NOWHERE, rate="auto", goals="p50<1s", requests=100)
    assert serving.levels[0].left_out == "probe"
    rates = [level.arrivals.rate for level in serving.levels[1:]]
    assert min(rates) < 7 < max(rates) == rates[0]
    # Levels at lower rates take longer than the first, which is no reason to end.
    assert "limit of" not in serving.capacity.reason
    assert serving.capacity.searched


@pytest.mark.slow
def test_latencies_are_those_of_lindleys_recursion_on_the_servers_log():
    with running("fifo_server", service=0.005) as server:
        serving = tg.measure_serving(server.address, rate=120, duration=2, seed=3)
        log = server.log()
    requests = serving.levels[0].requests
    services = [row["service"] for row in log]
    expected = lindley(requests.scheduled, services) - np.array(requests.scheduled)
    latencies = np.array(requests.last) - np.array(requests.scheduled)
    # What the server waited, and what the way there and back took; never less.
    assert (latencies > expected - 1e-4).all()
    served = np.array([row["finished"] - row["arrived"] for row in log])
    ours = np.array(requests.last) - np.array(requests.sent)
    assert ours.mean() > served.mean()


@pytest.mark.thorough
def test_levels_before_a_client_that_died_are_kept(monkeypatch):
    sends = []

    def send(plan, progress):
        sends.append(plan)
        if len(sends) == 2:
            raise MeasurementError("It died.", id="client-failed", remedy="Try again.")
        return real_send(plan, progress)

    real_send = load.send
    monkeypatch.setattr(load, "send", send)
    with running("fifo_server", service=0.001) as server:
        serving = tg.measure_serving(server.address, rate=[40, 80, 90], duration=0.5)
    assert [level.label for level in serving.levels] == ["40 requests/s"]
    (warning,) = [warning for warning in serving.warnings if warning.failed]
    assert (warning.id, len(sends)) == ("client-failed", 2)


@pytest.mark.slow
def test_what_ends_a_whole_job_keeps_its_levels(tmp_path):
    command = ["load", str(EXAMPLE), "--rate", ",".join(["20"] * 9), "--for", "2s"]
    path = tmp_path / "load.json"
    with subprocess.Popen(
        [sys.executable, "-m", "torchgauge", *command, "-o", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0, cwd=tmp_path,
    ) as process:  # fmt: skip
        progress = iter(process.stderr.readline, b"")
        # A level was whole where the next has begun.
        levels = (line for line in progress if b"requests/s" in line)
        assert any(b"stage 1 of" not in line for line in levels)
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 130
    serving = tg.load(path)
    assert serving.interrupted
    assert sum(len(level.requests) for level in serving.levels) > 0


@pytest.mark.thorough
def test_a_target_runs_behind_the_reference_server_in_batches():
    serving = tg.measure_serving(
        model(), torch.randn(1, 16), rate=400, duration=0.5, max_batch=4, max_delay=0.02, workers=2
    )
    level = serving.levels[0]
    assert set(level.requests.fate) == {"done"}
    assert serving.served_by.kind == "reference"
    assert (serving.served_by.max_batch, serving.served_by.workers) == (4, 2)
    assert serving.target.name == "Sequential"
    assert max(level.requests.batch) > 1
    sizes = {times.batch: len(times.seconds) for times in serving.service_times.batches}
    assert sum(size * count for size, count in sizes.items()) == len(level.requests)
    assert level.server.processes == 3


@pytest.mark.slow
def test_a_target_that_cannot_be_batched_is_refused_by_name():
    source = Source.of_object(lambda a, b: a, (torch.randn(3, 2), torch.randn(2, 2)))
    with pytest.raises(InputError) as raised, reference_server(source, max_batch=2):
        pass
    assert raised.value.id == "not-batchable"
    fixed = Source.of_object(lambda x: x.reshape(1, 16), torch.randn(1, 16))
    with pytest.raises(InputError) as raised, reference_server(fixed, max_batch=2):
        pass
    assert raised.value.id == "not-batchable"
    assert "max_batch=1" in raised.value.remedy


@pytest.mark.slow
def test_the_processes_of_the_server_end_with_the_block_and_with_the_last_worker():
    with reference_server(Source.of_object(model(), torch.randn(1, 16))) as server:
        front, worker = server.processes
        assert psutil.pid_exists(front)
        os.kill(worker, signal.SIGKILL)
        assert ended(front)
        assert not server.runs
    with reference_server(Source.of_object(model(), torch.randn(1, 16))) as server:
        pass
    assert all(map(ended, server.processes))


def ended(number):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def after(server, requests, action):
    """Do something once a server has had some requests."""

    def wait():
        while len(server.log()) < requests:
            time.sleep(0.05)
        action()

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.slow
def test_a_server_that_dies_is_a_result():
    with running("fifo_server", service=0.001) as server:
        after(server, 30, server.kill)
        serving = tg.measure_serving(server.address, rate=[50, 60, 70], duration=3)
    assert len(serving.levels) == 1
    fates = serving.levels[0].requests.fate
    assert fates[0] == "done"
    assert fates[-1] == "refused"
    assert "server-ended" in [warning.id for warning in serving.warnings]
    assert not serving.interrupted


@pytest.mark.thorough
def test_ctrl_c_keeps_the_levels_so_far_and_the_one_that_ran():
    with running("fifo_server", service=0.001) as server:
        after(server, 80, lambda: os.kill(os.getpid(), signal.SIGINT))
        serving = tg.measure_serving(server.address, rate=[50, 60, 70], duration=1.2)
    assert serving.interrupted
    first, second = serving.levels
    assert first.requests.fate.count("done") == len(first.requests)
    assert not first.interrupted
    assert second.interrupted
    assert second.requests.fate.count("done") > 0


@pytest.mark.parametrize(
    ("scenario", "size"), [("single-stream", 1), ("multi-stream", 8), ("offline", 4)]
)
def test_scenarios_call_a_target_here(scenario, size):
    batches = {"max_batch": 4} if scenario == "offline" else {}
    serving = tg.measure_serving(
        model(), torch.randn(1, 16), scenario=scenario, requests=20, duration=5, **batches
    )
    level = serving.levels[0]
    assert serving.served_by.kind == "call"
    assert len(level.requests) == (160 if scenario == "multi-stream" else 20)
    assert set(level.requests.batch) == {size}
    if scenario == "offline":
        assert set(level.requests.scheduled) == {0.0}
    else:
        assert level.requests.scheduled == level.requests.sent


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_trusted_target_is_called_in_a_process_of_its_own(interrupted, tmp_path):
    file = tmp_path / "trusted.py"
    file.write_text(
        "import os, pathlib, signal, torch\n"
        "class Net(torch.nn.Module):\n"
        "    calls = 0\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        f"        if self.calls == 11 and {interrupted}:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "        return x\n"
        "def net():\n"
        f"    pathlib.Path({str(tmp_path / 'process')!r}).write_text(str(os.getpid()))\n"
        "    return Net(), torch.randn(1, 2)\n"
    )
    request = TargetRequest(f"{file}:net", trust=True)
    serving = serving_request(request, scenario="offline", requests=40, duration=5, max_batch=2)
    assert int((tmp_path / "process").read_text()) != os.getpid()
    fates = serving.levels[0].requests.fate
    assert serving.interrupted is interrupted
    assert len(fates) == 40
    assert set(fates) == ({"done", "unfinished", "unsent"} if interrupted else {"done"})


class Slow(nn.Module):
    """A model that takes 30 ms; its 11th call is interrupted where it is to be."""

    def __init__(self, *, interrupted: bool) -> None:
        super().__init__()
        self.calls, self.interrupted = 0, interrupted

    def forward(self, x):
        self.calls += 1
        if self.interrupted and self.calls == 11:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.03)
        return x


@pytest.mark.parametrize("interrupted", [False, True])
def test_requests_that_were_due_when_the_time_is_over_have_their_fate(interrupted):
    serving = tg.measure_serving(
        Slow(interrupted=interrupted), torch.randn(1, 2), scenario="offline", requests=40,
        duration=5 if interrupted else 0.1, max_batch=2,
    )  # fmt: skip
    requests = serving.levels[0].requests
    assert serving.interrupted is interrupted
    fates = [*dict.fromkeys(requests.fate)]
    assert fates == ["done", *["unfinished"] * interrupted, "unsent"]
    assert requests.fate.count("unfinished") == 2 * interrupted
    assert len(requests) == len(requests.batch) == len(requests.service) == 40
    unsent = requests.fate.index("unsent")
    assert set(requests.scheduled[unsent:]) == {0.0}
    assert set(requests.sent[unsent:]) == set(requests.last[unsent:]) == {None}
    assert serving.levels[0].errors.value > 0


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "offline"])
def test_scenarios_send_to_an_endpoint(scenario):
    with running("fifo_server", service=0.001) as server:
        serving = tg.measure_serving(server.address, scenario=scenario, requests=16, duration=5)
    requests = serving.levels[0].requests
    assert set(requests.fate) == {"done"}
    together = {"single-stream": 1, "multi-stream": 8, "offline": 16}[scenario]
    assert len(requests) == 16 * (8 if scenario == "multi-stream" else 1)
    assert requests.scheduled.count(requests.scheduled[0]) == together


def test_a_target_without_a_rate_is_not_loaded():
    unused = {"rate": 5, "api": "openai-chat"}
    for settings, identity in (({}, "rate-missing"), (unused, "option-conflict")):
        with pytest.raises(InputError) as raised:
            tg.measure_serving("no_such_file.py:make", **settings)
        assert raised.value.id == identity


@pytest.mark.parametrize("unused", [{"inputs": torch.ones(1)}, {"device": "cpu"}])
def test_a_url_has_no_inputs_and_no_device(unused):
    with pytest.raises(InputError) as raised:
        tg.measure_serving(NOWHERE, rate=1, **unused)
    assert raised.value.id == "option-conflict"


def test_another_machine_is_not_loaded():
    with pytest.raises(InputError) as raised:
        tg.measure_serving("http://192.0.2.1:80/", rate=1)
    assert raised.value.id == "address-remote"
