"""Odd models × public functions: an id or a result, nothing raw, no change in silence, no hang."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("matrix_child.py")
LONGEST = 120.0  # seconds without a line: a hang
# Changes that are said where they are made: a warning names them (`model-changed`), or the docs do.
SAID = {
    "iterators": "model-changed: an iterator cannot be put back",
    "lazy": "a lazy module stays initialised",
    "writes_to_inputs": "inputs are not the model's",
}
SHORT = (
    "counter", "dataclasses", "parts", "class_changed", "class_counts", "folder", "loggers",
    "yields", "coroutine", "equal_and_unhashable", "contains_itself", "answers_everything",
    "answers_qualname", "fake", "locked", "iterators",
)  # fmt: skip
QUICK = ("count_cost", "measure_latency", "measure_size")


def ran(models: str, functions: str) -> list[dict[str, Any]]:
    """Run the child, and fail where it hangs or dies; return what it says of each pair."""
    found: list[dict[str, Any]] = []
    at = ["nothing"]
    with subprocess.Popen(
        [sys.executable, str(CHILD), models, functions],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | {"KINETO_LOG_LEVEL": "5"},
    ) as child:  # fmt: skip
        timer = _timer(child)
        assert child.stdout is not None
        for line in child.stdout:
            timer.cancel()
            timer = _timer(child)
            if line.startswith("{"):
                one = json.loads(line)
                at = one.get("start", at)
                found += [] if "start" in one else [one]
        timer.cancel()
        assert child.wait() == 0, f"the process ended at {at} with {child.returncode}"
    return found


def _timer(child: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(LONGEST, child.kill)
    timer.daemon = True
    timer.start()
    return timer


def _judged(found: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    ends = collections.Counter(one["ended"] for one in found)
    models = {one["model"] for one in found}
    raw = [one for one in found if one["ended"].startswith("RAW")]
    silent = [one for one in found if one["changed"] and one["model"] not in SAID]
    with capsys.disabled():
        print(
            f"\n{len(found)} runs of {len(models)} odd models in "
            f"{len({one['function'] for one in found})} functions: {len(raw)} raw errors, "
            f"{len(silent)} silent changes, 0 hangs; ends: {dict(ends.most_common())}"
        )
    assert not raw, "\n".join(
        f"{o['model']}, {o['function']}: {o['trace'][-1500:]}" for o in raw[:5]
    )
    assert not silent, [(one["model"], one["function"], one["changed"]) for one in silent[:10]]


@pytest.mark.slow
def test_some_odd_models_in_quick_functions(capsys):
    found = ran(",".join(SHORT), ";".join(QUICK))
    assert len(found) == len(SHORT) * len(QUICK)
    _judged(found, capsys)
    runs = [run for run in found if run["model"] == "iterators" and run["ended"] == "done"]
    named = {run["function"] for run in runs if "model-changed" in run["said"]}
    assert named == {"count_cost", "measure_latency"}


@pytest.mark.attack
def test_every_odd_model_in_every_function(capsys):
    found = ran("all", "all")
    assert len({one["model"] for one in found}) >= 60
    _judged(found, capsys)
