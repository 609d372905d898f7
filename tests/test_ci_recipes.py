"""The steps of the GitHub action and of the GitLab job, run by the shell that runs them there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import junitparser
import pytest
import yaml
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.cli.main import build
from torchgauge.folders import start_here

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = (ROOT / "docs/recipes/ci.md").read_text()
YAML = [yaml.safe_load(found) for found in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]
FAKE = f"""#!{sys.executable}
import json, os, pathlib, sys
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
sys.exit(int(os.environ.get("CODE", "0")))
"""
MODEL = """
import torch
from torch import nn

def small():
    return nn.Linear(8, 4), torch.ones(2, 8)
"""


class Runner:
    """A machine with the programs that a test puts there; `calls` is what they were asked."""

    def __init__(self, folder):
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.output = folder / "output"
        self.summary = folder / "summary"

    def fake(self, *names):
        for name in names:
            self.program(name, FAKE)

    def program(self, name, text):
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, script, code=0, **variables):
        known = {
            "PATH": f"{self.programs}:/usr/bin:/bin", "CALLS": str(self.folder / "calls"),
            "CODE": str(code), "GITHUB_OUTPUT": str(self.output), "HOME": str(self.folder),
            "GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_ACTIONS": "true",
        }  # fmt: skip
        return subprocess.run(
            [*BASH, "-c", script], cwd=self.folder, env={**known, **variables},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    @property
    def calls(self):
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


def step(name):
    return next(one for one in ACTION["runs"]["steps"] if one["name"] == name)


def variables(found, **inputs):
    """Return the step's environment as the runner fills it in."""
    known = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
    values = {f"inputs.{name}": value for name, value in known.items()}
    values["github.action_path"] = "/action"

    def filled(text):
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda one: values[one[1]], text)

    return {name: filled(text) for name, text in found["env"].items()}


def measure(runner, code=0, **inputs):
    found = step("Measure and judge")
    given = {"target": "model.py:small", **{k.replace("_", "-"): v for k, v in inputs.items()}}
    return runner.run(found["run"], code, **variables(found, **given))


COMMON = ["--model-path", "model.py:small", "--output-dir", "torchgauge-results",
          "--format", "json,markdown,junit"]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "command"),
    [
        ({"threshold": "latency:100ms params:20k"},
         ["profile", *COMMON, "--threshold", "latency:100ms", "--threshold", "params:20k"]),
        ({"base_ref": "origin/main"}, ["gate", *COMMON, "--base-ref", "origin/main"]),
        ({"baseline": "a b.json", "tolerance": "latency:1%:3%\nmemory:5%", "metric": "latency"},
         ["gate", *COMMON, "--baseline", "a b.json", "--tolerance", "latency:1%:3%",
          "--tolerance", "memory:5%", "--metric", "latency"]),
        ({"base_ref": "main", "arguments": "--device cpu\n--batch 8"},
         ["gate", *COMMON, "--base-ref", "main", "--device", "cpu", "--batch", "8"]),
        ({"target": "my model.py:small", "threshold": "params:*"},
         ["profile", "--model-path", "my model.py:small", *COMMON[2:], "--threshold", "params:*"]),
        ({"target": "$(touch hacked); `touch hacked`", "base_ref": '"; touch hacked #'},
         ["gate", "--model-path", "$(touch hacked); `touch hacked`", *COMMON[2:],
          "--base-ref", '"; touch hacked #']),
    ],
)  # fmt: skip
def test_the_action_asks_for_what_its_inputs_say(runner, inputs, command):
    runner.fake("torchgauge")
    (runner.folder / "params:1").touch()  # what an unquoted params:* would become
    done = measure(runner, **inputs)
    assert (done.returncode, done.stderr) == (0, "")
    assert runner.calls == [["torchgauge", *command]]
    assert not (runner.folder / "hacked").exists()
    if "hacked" not in str(command):
        build().parse_args(command)  # the real command line takes it


@pytest.mark.parametrize(
    ("code", "allowed", "ends"),
    [(0, "false", 0), (3, "false", 3), (3, "true", 3), (4, "false", 4), (4, "true", 0),
     (5, "true", 5), (1, "true", 1)],
)  # fmt: skip
def test_the_action_ends_as_torchgauge_does(runner, code, allowed, ends):
    runner.fake("torchgauge")
    assert measure(runner, code, allow_inconclusive=allowed).returncode == ends
    assert runner.output.read_text() == f"exit-code={code}\n"


@pytest.mark.parametrize(
    ("given", "installed"),
    [("", "/action[torch]"), ("torchgauge-profiler==1", "torchgauge-profiler==1")],
)
def test_the_action_installs_only_where_it_is_absent(runner, given, installed):
    found = step("Install torchgauge")
    runner.fake("python")
    assert runner.run(found["run"], **variables(found, install=given)).returncode == 0
    assert runner.calls == [["python", "-m", "pip", "install", "--quiet", installed]]
    runner.fake("torchgauge")
    runner.run(found["run"], **variables(found))
    assert len(runner.calls) == 1


def test_no_input_reaches_a_script_but_by_its_environment():
    for one in ACTION["runs"]["steps"]:
        assert "${{" not in one.get("run", "")


def test_the_action_keeps_what_was_measured_even_where_it_fails():
    upload = step("Keep the record")
    assert upload["if"].startswith("${{ !cancelled()")
    assert upload["with"]["path"] == "${{ inputs.output-dir }}"
    assert ACTION["outputs"]["exit-code"]["value"] == "${{ steps.measure.outputs.exit-code }}"
    assert step("Measure and judge")["id"] == "measure"


@pytest.mark.slow
def test_the_action_for_once_with_the_real_torchgauge(runner):
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    runner.program("torchgauge", f'#!/bin/bash\nexec {sys.executable} -m torchgauge "$@" '
                   "--detail summary --iterations 5 --warmup 1\n")  # fmt: skip
    (runner.folder / "model.py").write_text(MODEL)
    found = step("Measure and judge")
    given = variables(found, target="model.py:small", threshold="params:36 params:35 latency:1h")
    bad = runner.run(found["run"], PYTHONPATH=source, **given)
    assert bad.returncode == 2  # an hour is no unit of latency
    assert "[threshold-invalid]" in bad.stderr
    given = variables(found, target="model.py:small", threshold="params:36 params:35 latency:99s")
    done = runner.run(found["run"], PYTHONPATH=source, **given)
    assert done.returncode == 3, done.stderr
    results = runner.folder / "torchgauge-results"
    assert tg.load(results / "profile.json").size.parameters == 36
    (suite,) = junitparser.JUnitXml.fromfile(str(results / "verdict.junit.xml"))
    assert (suite.tests, suite.failures) == (3, 1)
    assert runner.summary.read_text().startswith("### ✗ FAIL: params (1 of 3)")
    assert "::error file=model.py,title=torchgauge%3A params::params: fail, 36" in done.stderr


def test_the_workflow_gives_inputs_that_the_action_has():
    (uses,) = (
        one for one in YAML[0]["jobs"]["gate"]["steps"] if "torchgauge@" in one.get("uses", "")
    )
    assert set(uses["with"]) <= set(ACTION["inputs"])


def gitlab(runner, code=0):
    script = "\n".join(YAML[1]["model"]["script"])
    return runner.run(script, code, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main")


def test_the_gitlab_job_asks_for_a_gate(runner):
    runner.fake("torchgauge", "pip", "git")
    assert gitlab(runner).returncode == 0
    pip, git, gate = runner.calls
    assert pip[:2] == ["pip", "install"]
    assert pip[2].startswith("torchgauge-profiler[torch] @ git+https://")
    assert git == ["git", "fetch", "origin", "main"]
    start_here()  # as `main` does: an earlier test may have typed in another folder
    options = build().parse_args(gate[1:])
    assert (options.target, options.base_ref) == ("model.py:small", "FETCH_HEAD")
    assert options.threshold == ["params:20k", "memory:1MB"]
    folder = f"{options.output_dir.relative_to(Path.cwd())}/verdict.junit.xml"
    assert YAML[1]["model"]["artifacts"]["reports"]["junit"] == folder
    assert "junit" in options.formats


def test_the_gitlab_job_ends_as_torchgauge_does(runner):
    runner.fake("pip", "git")
    runner.program("torchgauge", "#!/bin/sh\nexit 3\n")
    assert gitlab(runner).returncode == 3
