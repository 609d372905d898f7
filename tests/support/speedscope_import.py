"""Files for speedscope, read by its own importer."""

import json
import shutil
import subprocess

import pytest
from tests.support.paths import SUPPORT

SPEEDSCOPE = SUPPORT / "speedscope"


def imported(path):
    """Return what speedscope reads: by profile its unit, and self and total of each frame."""
    if shutil.which("node") is None or not (SPEEDSCOPE / "node_modules").is_dir():
        pytest.skip("needs Node.js and speedscope: make test-all installs it")
    command = ["node", SPEEDSCOPE / "import.mjs", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {one["name"]: one for one in json.loads(done.stdout)}
