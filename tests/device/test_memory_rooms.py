"""Memory limits of cgroups and the machine, from files written by hand as Linux writes them."""

import pytest

from torchgauge.device.cpu import SystemFiles
from torchgauge.device.process_counters import memory_rooms

MEMINFO = "MemTotal: 1000 kB\nMemAvailable: 250 kB\n"
V2 = {
    "proc/meminfo": MEMINFO,
    "proc/self/cgroup": "0::/job/step\n",
    "sys/fs/cgroup/job/memory.max": "500000\n",
    "sys/fs/cgroup/job/memory.high": "max\n",
    "sys/fs/cgroup/job/memory.current": "400000\n",
    "sys/fs/cgroup/job/memory.stat": "anon 90000\nfile 300000\nshmem 1000\n",
    "sys/fs/cgroup/job/memory.events": "low 0\noom 3\noom_kill 2\n",
    "sys/fs/cgroup/job/step/memory.max": "max\n",
    "sys/fs/cgroup/job/step/memory.high": "300000\n",
    "sys/fs/cgroup/job/step/memory.current": "200000\n",
}
V1 = {
    "proc/meminfo": MEMINFO,
    "proc/self/cgroup": "4:memory:/job\n1:cpu:/other\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "600000\n",
    "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "550000\n",
    "sys/fs/cgroup/memory/job/memory.stat": "cache 1\ntotal_cache 200000\ntotal_shmem 50000\n",
    "sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 5\n",
}


def rooms(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return {room.name: room for room in memory_rooms(SystemFiles(root))}


def test_limits_of_a_cgroup_and_those_above_it(tmp_path):
    found = rooms(tmp_path, V2)
    assert {name: room.limit for name, room in found.items()} == {
        "the cgroup's memory.max": 500_000,
        "the cgroup's memory.high": 300_000,
        "this machine's memory": 1_024_000,
    }
    room = found["the cgroup's memory.max"]
    assert room.used() == 400_000 - 300_000 + 1_000  # without the page cache, with shared memory
    assert room.kills() == 2
    assert found["the cgroup's memory.high"].used() == 200_000
    machine = found["this machine's memory"]
    assert (machine.used(), machine.kills()) == (750 * 1024, 0)


def test_the_first_version_of_cgroups_counts_those_below_too(tmp_path):
    found = rooms(tmp_path, V1)
    assert list(found) == ["the cgroup's memory.limit_in_bytes", "this machine's memory"]
    room = found["the cgroup's memory.limit_in_bytes"]
    assert (room.limit, room.used(), room.kills()) == (600_000, 400_000, 5)


@pytest.mark.parametrize("files", [{}, {"proc/self/cgroup": "nonsense"}])
def test_without_files_there_are_no_limits(files, tmp_path):
    assert rooms(tmp_path, files) == {}
