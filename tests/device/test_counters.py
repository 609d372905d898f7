"""Where the system tells nothing, what it would have told is None and all else is measured."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from torchgauge.device import counters
from torchgauge.measure.machine import system

ROOT = Path(__file__).resolve().parents[2] / "src" / "torchgauge"
RAISED = [
    FileNotFoundError(2, "/proc/stat"),
    PermissionError(),
    psutil.AccessDenied(),
    RuntimeError(),
]


@pytest.mark.thorough
def test_no_other_file_uses_psutil():
    users = set()
    for file in ROOT.rglob("*.py"):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "psutil" in text else ():
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.split(".")[0] == "psutil" for name in names):
                users.add(file.name)
    assert users == {"counters.py", "process_counters.py"}


@pytest.fixture(params=RAISED, ids=lambda one: type(one).__name__)
def silent(request, monkeypatch):
    """A system that answers no question of psutil's."""

    def refuse(*_, **__):
        raise request.param

    for name in ("Process", "virtual_memory", "cpu_times", "cpu_count", "net_io_counters",
                 "process_iter"):  # fmt: skip
        monkeypatch.setattr(psutil, name, refuse)


@pytest.mark.usefixtures("silent")
def test_what_cannot_be_read_is_none():
    assert counters.machine_times() is None
    assert counters.memory_available() is None
    assert counters.resident() is None
    assert counters.data_segment() is None
    assert counters.physical_cores() is None
    assert counters.network() == (None, None)
    assert counters.own_io() is None
    assert counters.process_start() is None
    assert list(counters.other_processes()) == []
    assert counters.logical_cores() == (os.cpu_count() or 1)
    assert counters.own_time() > 0


@pytest.mark.usefixtures("silent")
def test_the_use_of_a_silent_machine_is_unknown_and_its_cores_are_known():
    found = system.measure(lambda: sum(range(1000)), duration=0.05, interval=0.02)
    assert found.machine is None
    assert found.other is None
    assert found.rss is None
    assert found.network_sent is None
    assert {one.rss for one in found.samples} == {None}
    assert found.cores.mean > 0


def test_a_process_whose_status_is_hidden_has_no_peak(tmp_path):
    (tmp_path / "clear_refs").touch()
    with counters.watched_resident(tmp_path) as resident:
        pass
    assert resident.before is None
    assert resident.peak is None


PROGRAM = textwrap.dedent("""
    import ctypes, json, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000):  # CLONE_NEWNS
        sys.exit(77)
    libc.mount(b"none", b"/", None, 0x44000, None)  # nothing of it leaves this process
    if libc.mount(b"none", b"/proc", b"tmpfs", 0, None):
        sys.exit(77)
    assert not os.path.exists("/proc/self")
    import torch, torchgauge as tg
    model = torch.nn.Linear(4, 4)
    found = tg.profile(model, torch.ones(2, 4), iterations=3, processes=1, roofs=False,
                       progress=False)
    seen = tg.diagnose(quick=True, progress=False)
    print(json.dumps({
        "failed": [one.id for one in found.warnings if one.failed],
        "peak": found.memory.peak, "rss": found.memory.rss_peak, "flops": found.cost.flops,
        "other": found.system.other, "text": str(found), "doctor": str(seen),
        "markdown": found.to_markdown(), "html": len(found.to_html()),
    }))
""")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts need root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="Linux alone has mount namespaces")
def test_a_container_that_hides_proc_is_measured_all_the_same():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    if run.returncode == 77:
        pytest.skip("mounts are not allowed here")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["failed"] == []
    assert found["flops"] == 2 * 2 * 4 * 4
    assert found["peak"] > 0
    assert (found["rss"], found["other"]) == (None, None)
    assert "unknown" in found["text"]
