"""The stand-in that lets torchvision be imported beside a torch it was not compiled for."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.paths import SUPPORT


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_torch_is_not_imported_before_torchvision_is() -> None:
    assert run("import torchvision_schemas; print('torch' in sys.modules)") == "False"


@pytest.mark.slow
def test_every_operator_torchvision_registers_is_defined() -> None:
    program = """
import torchvision_schemas, torchvision, torch, inspect, re
from torchvision import _meta_registrations
source = inspect.getsource(_meta_registrations)
names = re.findall(r'(?:register_meta."|register_fake."torchvision::)(.+?)"', source)
print(len(names), [name for name in names if not hasattr(torch.ops.torchvision, name)])
"""
    count, missing = run(program).split(" ", 1)
    assert int(count) >= 10
    assert missing == "[]"


@pytest.mark.parametrize("compiled_operators_load", [False, True])
def test_installing_writes_a_line_that_every_interpreter_reads(
    compiled_operators_load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    done = SimpleNamespace(returncode=0 if compiled_operators_load else 1)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    runpy.run_path(str(SUPPORT / "install_torchvision_schemas.py"), run_name="__main__")
    if compiled_operators_load:
        assert not list(tmp_path.iterdir())
        return
    assert (tmp_path / "torchvision_schemas.pth").read_text() == "import torchvision_schemas\n"
    assert (tmp_path / "torchvision_schemas.py").is_file()
