"""What is imported and printed leaves random numbers, filters and the rest as they were."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, pickle, sys
import random, numpy, torch
sys.path.insert(0, sys.argv[1])
import observer
import torchgauge as tg

model, inputs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(2, 4)
found, changes = {}, {}


def watched(name, function):
    before = observer.process()
    result = function()
    changes[name] = observer.changed(before, observer.process())
    return result


quiet = {"progress": False}
watched("size", lambda: str(tg.measure_size(model)))
watched("cost", lambda: str(tg.count_cost(model, inputs)))
profile = watched("profile", lambda: tg.profile(
    model, inputs, iterations=2, processes=1, roofs=False, **quiet))
watched("print", lambda: str(profile))
watched("repr", lambda: repr(profile))
for name in ("to_html", "to_markdown", "to_csv", "to_openmetrics", "to_speedscope", "to_folded",
             "_repr_html_"):
    if hasattr(profile, name):
        watched(name, getattr(profile, name))
from torchgauge.progress import TerminalProgress
shown = watched("progress", TerminalProgress)
watched("update", lambda: shown.update("a"))
watched("close", shown.close)
watched("save", lambda: profile.save("profile.json"))
watched("load", lambda: str(tg.load("profile.json")))
watched("compare", lambda: str(tg.compare(profile, profile)))
print(json.dumps(changes))
"""


@pytest.mark.slow
def test_no_method_changes_the_process(tmp_path):
    attack = Path(__file__).with_name("attack")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(attack)],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    changes = json.loads(run.stdout.splitlines()[-1])
    assert len(changes) >= 14
    assert not {name: what for name, what in changes.items() if what}
