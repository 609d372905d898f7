import json
import os
import re
import subprocess
import sys

import pytest
from tests.support.fake_machine import QUIET, machine
from tests.support.records import environment

from torchgauge.device.checks import every
from torchgauge.device.checks.readings import TorchState
from torchgauge.records import rendering
from torchgauge.records.doctor import Check, Diagnosis
from torchgauge.report.console.console import view

# On a slow machine a line each five seconds says how far it is.
PROGRESS = re.compile(r"^torchgauge: .* · \d+ s.*\n", re.MULTILINE)


def torchgauge(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "torchgauge", *arguments],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def diagnosis(root, **faults):
    where = environment()
    return Diagnosis(
        environment=where,
        fingerprint=where.machine.fingerprint,
        checks=every.checks(machine(root, **faults)),
    )


@pytest.mark.slow
def test_the_verb_prints_json_and_exits_with_zero():
    done = torchgauge("doctor", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["schema"] == "torchgauge.diagnosis/1"
    assert len(record["checks"]) == len(every.ALL_CHECKS) + 1
    assert {check["status"] for check in record["checks"]} <= {"clear", "found", "unknown"}
    assert record["noise"] is None


@pytest.mark.slow
def test_strict_exits_with_one_for_a_planted_fault():
    fault = {"CUDA_LAUNCH_BLOCKING": "1"}
    done = torchgauge("doctor", "--quick", "--strict", "--quiet", **fault)
    assert done.returncode == 1
    assert "slowing-variable" in done.stdout
    assert PROGRESS.sub("", done.stderr) == ""


@pytest.mark.parametrize(("severity", "code"), [("info", 0), ("warning", 1), ("serious", 1)])
def test_strict_counts_what_is_worse_than_a_note(severity, code, tmp_path, monkeypatch, capsys):
    from torchgauge.cli.main import main
    from torchgauge.measure.machine import doctor

    fault = {
        "info": {"logical_cores": 16},
        "warning": {"torch": TorchState(threads=8, deterministic=True)},
        "serious": {"torch": TorchState(threads=9)},
    }[severity]
    found = diagnosis(tmp_path, **fault)
    monkeypatch.setattr(doctor, "diagnose", lambda **_: found)
    assert main(["doctor", "--strict"]) == code
    assert main(["doctor"]) == 0


@pytest.mark.thorough
def test_it_works_without_torch():
    code = (
        "import importlib.util as u, sys\n"
        "sys.modules['torch'] = None\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "from torchgauge.cli.main import main; sys.exit(main(['doctor', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    status = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    for name in ("torch-build", "torch-switches", "threads", "noise"):
        assert status[name]["status"] == "unknown"
        assert "torch" in status[name]["unknown"]


def test_the_view_fits_80_columns_and_names_every_check_and_finding(tmp_path):
    import dataclasses

    found = diagnosis(
        tmp_path,
        files={"proc/cpuinfo": None, "sys/fs/cgroup/cpu.max": "150000 100000"},
        logical_cores=16,
        torch=TorchState(threads=9, deterministic=True, anomaly=True),
        activity=dataclasses.replace(QUIET, other=8.0, steal=0.2),
    )
    text = rendering.text(found, "console")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert str(found) == text
    flat = " ".join(text.split())
    for check in found.checks:
        assert check.title in text
    for finding in found.findings:
        for part in (finding.title, f"[{finding.id}]", finding.evidence, finding.remedy):
            assert part in flat
    assert "Found: 5 serious, 1 warning, 1 to know" in text
    assert "Checks: 18 of 19 made in full" in text
    assert view(found, width=80) is not None


def test_found_stands_before_unknown_and_unknown_before_clear():
    (finding,) = environment_finding()
    assert Check.from_findings("a", "A").status == "clear"
    assert Check.from_findings("a", "A", unknown="hidden").status == "unknown"
    assert Check.from_findings("a", "A", unknown="hidden", findings=(finding,)).status == "found"


def environment_finding():
    from torchgauge.records.finding import Finding

    return (Finding(id="x", severity="info", title="X", evidence="E", remedy="R"),)
