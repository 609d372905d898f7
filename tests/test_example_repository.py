"""The repository of examples/ci-repository, run as its CI runs it, offline."""

import os
import shutil
import subprocess
import sys

import junitparser
import pytest
import yaml
from tests.support.paths import EXAMPLES, ROOT

SOURCE = EXAMPLES / "ci-repository"
WORKFLOW = yaml.safe_load((SOURCE / ".github/workflows/model.yml").read_text())
JOB = yaml.safe_load((SOURCE / ".gitlab-ci.yml").read_text())["model"]
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
STEPS = {step["name"]: step for step in WORKFLOW["jobs"]["figures"]["steps"] if step.get("run", "")}
# pip is left out: what it would install is here.
PYTHON = f"""#!/bin/sh
[ "$1 $2" = "-m pip" ] && exit 0
exec {sys.executable} "$@"
"""
TORCHGAUGE = f"""#!/bin/sh
exec {sys.executable} -m torchgauge "$@"
"""


class Clone:
    """A clone with a branch, and the programs that its CI starts."""

    def __init__(self, folder):
        self.origin, self.folder, self.programs = (
            folder / name for name in ("origin", "clone", "bin")
        )
        shutil.copytree(SOURCE, self.origin, ignore=shutil.ignore_patterns("__pycache__"))
        self.git("init", "-q", "-b", "main", folder=self.origin)
        self.commit(self.origin)
        subprocess.run(["git", "clone", "-q", self.origin, self.folder], check=True)
        self.git("checkout", "-q", "-b", "change")
        self.programs.mkdir()
        for name, text in (("python", PYTHON), ("torchgauge", TORCHGAUGE)):
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)
        self.state = folder / "state"

    def git(self, *words, folder=None):
        subprocess.run([*GIT, *words], cwd=folder or self.folder, check=True)

    def commit(self, folder=None):
        self.git("add", ".", folder=folder)
        self.git("commit", "-q", "--allow-empty", "-m", "change", folder=folder)

    def widen(self):
        model = self.folder / "digits" / "model.py"
        model.write_text(model.read_text().replace("WIDTH = 32", "WIDTH = 48"))
        self.commit()

    def run(self, script, **variables):
        path = os.pathsep.join([str(self.programs), os.environ["PATH"]])
        own = {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "TORCHGAUGE_STATE": str(self.state)}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder, env={**os.environ, **own, **variables},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def step(self, name):
        """Run a step of the workflow, its expressions filled in as for a pull request to main."""
        variables = {
            key: value.replace("${{ github.base_ref }}", "main")
            for key, value in STEPS[name].get("env", {}).items()
        }
        assert "${{" not in STEPS[name]["run"] + "".join(variables.values())
        return self.run(STEPS[name]["run"], **variables)


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


@pytest.mark.slow
def test_a_larger_model_fails_at_the_assertion_and_at_the_gate(clone):
    clone.widen()
    tests = clone.step("Assert figures")
    assert tests.returncode == 1, tests.stdout + tests.stderr
    assert "torchgauge.assert_params(model, equal=25_258)" in tests.stdout
    gate = clone.step("Gate against the base")
    assert gate.returncode == 3, gate.stdout + gate.stderr
    assert "✗ params" in gate.stdout
    suite = junitparser.JUnitXml.fromfile(str(clone.folder / "results" / "verdict.junit.xml"))
    assert sum(one.failures for one in suite) > 0


@pytest.mark.slow
def test_another_change_passes_on_github(clone):
    (clone.folder / "README.md").write_text("Changed.\n")
    clone.commit()
    for name in STEPS:
        done = clone.step(name)
        assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in (clone.folder / "results").iterdir()}
    assert {"tests.junit.xml", "verdict.json", "verdict.md", "verdict.junit.xml"} <= names


@pytest.mark.slow
def test_another_change_passes_on_gitlab(clone):
    clone.commit()
    done = clone.run("\n".join(JOB["script"]), CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(clone.folder.glob(JOB["artifacts"]["reports"]["junit"]))


def test_both_run_the_same_commands():
    def words(script):
        return " ".join(script.split())

    github = [words(step["run"]) for step in STEPS.values()]
    gitlab = [words(line) for line in JOB["script"] if not line.startswith("git ")]
    assert [line.replace('"$BASE_REF"', "FETCH_HEAD") for line in github] == gitlab
