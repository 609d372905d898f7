"""What a server's processes use: sums, rates and the limit, from readings made by hand."""

import os
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace
from tests.support.servers.running import running
from tests.support.serving_levels import open_level, use
from tests.support.servings import serving

from torchgauge.device.cpu import SystemFiles
from torchgauge.device.process_counters import (
    ProcessReading,
    cores_of,
    listening,
    memory_of,
    read_process,
    with_children,
)
from torchgauge.errors import InputError
from torchgauge.serving import server_use as uses
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.server_use import ServerWatch, _Moment, server_use


def reading(cpu, memory=100, *, waiting=0.0, ran=None, threads=None):
    ran = cpu if ran is None else ran
    return ProcessReading(cpu, memory, int(cpu * 1000), 0, waiting, ran, threads or {})


def test_readings_of_several_processes_are_added_up():
    moments = [
        _Moment(10.0, {1: reading(5.0), 2: reading(1.0)}, (0, 0), None, None),
        _Moment(11.0, {1: reading(5.5), 2: reading(2.0, waiting=0.5)}, (100, 50), None, None),
        # A process that came has no rate yet, and one that ended none any longer.
        _Moment(13.0, {2: reading(4.0, waiting=0.5), 3: reading(9.0)}, (100, 250), None, None),
    ]
    use = server_use(moments, begin=10.0)
    assert use.time == (1.0, 3.0)
    assert use.cpu == pytest.approx((1.5, 1.0))
    assert use.memory == (200, 200)
    assert use.read == pytest.approx((1500.0, 1000.0))
    assert use.sent == (100.0, 0.0)
    assert use.received == (50.0, 100.0)
    # Ready and without a core for 0.5 of 2.0 s in which they could run.
    assert use.waiting == pytest.approx((0.25, 0.0))
    assert use.processes == 2
    assert (use.gpu, use.gpu_memory) == ((), ())


@pytest.mark.parametrize(("cores", "name"), [(1, "cpu"), (8, "one core")])
def test_the_resource_at_its_limit_is_named(monkeypatch, cores, name):
    monkeypatch.setattr(uses, "cores_of", lambda number: cores)
    moments = [_Moment(t, {1: reading(0.95 * t)}, (0, 0), None, None) for t in (0.0, 1.0, 2.0)]
    assert server_use(moments, begin=0.0).first_saturated == name


@pytest.mark.parametrize(
    ("busy", "name"), [((0.97, 0.9), "one core"), ((0.6, 0.6, 0.6), ""), ((0.4,), "")]
)
def test_a_thread_that_takes_one_core_is_at_a_limit(monkeypatch, busy, name):
    """Of 16 cores one is used up, which the share of all of them hides."""
    monkeypatch.setattr(uses, "cores_of", lambda number: 16)
    moments = []
    for t in (0.0, 1.0, 2.0):
        threads = {str(number): share * t for number, share in enumerate(busy)}
        moments.append(_Moment(t, {1: reading(sum(busy) * t, threads=threads)}, (0, 0), None, None))
    use = server_use(moments, begin=0.0)
    assert use.first_saturated == name
    assert use.busiest == pytest.approx((max(busy),) * 2)


def test_the_memory_of_a_container_is_a_limit(monkeypatch):
    monkeypatch.setattr(uses, "memory_of", lambda number: 105)
    moments = [_Moment(t, {1: reading(0.0)}, (0, 0), None, None) for t in (0.0, 1.0)]
    assert server_use(moments, begin=0.0).first_saturated == "memory"


def test_a_process_has_what_its_own_container_grants(tmp_path):
    number = os.getpid()
    written = {
        f"proc/{number}/cgroup": "0::/server\n",
        "proc/self/cgroup": "0::/client\n",
        "sys/fs/cgroup/server/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/server/memory.max": "4096\n",
        "sys/fs/cgroup/client/cpu.max": "10000 100000\n",
        "proc/meminfo": "MemTotal: 1000 kB\n",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = SystemFiles(tmp_path)
    assert (cores_of(number, files), memory_of(number, files)) == (0.5, 4096)
    (tmp_path / f"proc/{number}/cgroup").write_text("0::/\n")
    assert cores_of(number, files) == len(os.sched_getaffinity(number))
    assert memory_of(number, files) == 1_024_000


def test_readings_before_the_level_are_left_out():
    moments = [_Moment(float(t), {1: reading(t)}, (None, None), None, None) for t in range(4)]
    use = server_use(moments, begin=2.0)
    assert use.time == (1.0,)
    assert (use.sent, use.received) == ((), ())
    assert server_use(moments[:1], begin=0.0) is None


def test_a_process_is_found_by_its_port_and_read():
    with running("fifo_server") as server:
        numbers = listening(server.port)
        assert server.process.pid in numbers
        assert read_process(server.process.pid).memory > 2**20
    assert read_process(server.process.pid) is None
    assert read_process(os.getpid()).cpu > 0


def test_named_processes_are_watched_with_those_that_they_started():
    """As of a proxy that listens, whose replica another process started."""
    sleeping = [sys.executable, "-Sc", "import sys; sys.stdin.read()"]
    script = f"import subprocess, sys; subprocess.Popen({sleeping!r}); print(flush=True); "
    command = [sys.executable, "-Sc", script + sleeping[-1]]
    with (
        running("fifo_server") as server,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as replica,
    ):
        replica.stdout.readline()
        numbers = with_children([replica.pid])
        assert len(numbers) == 2
        address = parse_address(server.address)
        for named, covers, processes in (((replica.pid,), "named", 2), ((), "listening", 1)):
            with ServerWatch.of_endpoint(address, named) as watch:
                watch.start()
                time.sleep(0.06)
                use = watch.use(1.0)
            assert (use.covers, use.processes) == (covers, processes)
        replica.stdin.close()
    with pytest.raises(InputError) as raised, ServerWatch.of_endpoint(address, (replica.pid,)):
        pass
    assert raised.value.id == "option-invalid"


def test_a_report_says_which_processes_the_figures_are_of():
    own = use(8.0, 1.0)
    reports = [
        serving([open_level(50, 400, server=replace(own, covers=covers))]).to_markdown()
        for covers in ("listening", "named", "")
    ]
    listening_at, named, unsaid = (" ".join(report.split()) for report in reports)
    start, end = "Of 2 processes: those that", "and what they started."
    assert f"{start} listen at the address, {end}" in listening_at
    assert f"{start} were named, {end}" in named
    assert "server-pid" not in unsaid


def test_nothing_is_read_without_processes():
    with ServerWatch(()) as watch:
        watch.start()
        assert watch.use(1.0) is None
