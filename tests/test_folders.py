"""Where a process was started, and the user's own folders."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchgauge import folders
from torchgauge.device import calibration
from torchgauge.errors import InputError
from torchgauge.records.latency.latency import PastRun


def test_what_was_typed_is_meant_from_where_the_process_was_started(tmp_path, monkeypatch):
    began = Path(folders.STARTED_IN)
    monkeypatch.chdir(began)
    assert folders.typed("out/x.json") == began / "out" / "x.json"
    assert folders.display_path(began / "out" / "x.json") == "out/x.json"
    assert folders.display_path(tmp_path / "x.json") == str(tmp_path / "x.json")
    monkeypatch.chdir(tmp_path)
    assert folders.typed("out/x.json") == began / "out" / "x.json"
    assert folders.typed(str(tmp_path)) == tmp_path
    # Here the short name would be a lie.
    assert folders.display_path(began / "out" / "x.json") == str(began / "out" / "x.json")


def test_a_working_folder_that_is_gone_is_said(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert folders.working_folder() == gone
    gone.rmdir()
    with pytest.raises(InputError) as error:
        folders.working_folder()
    assert error.value.id == "folder-removed"


def test_a_program_may_be_started_where_no_folder_is(tmp_path):
    code = (
        "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone');"
        "from torchgauge import folders; print(folders.STARTED_IN, folders.typed('/x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None /x\n"


@pytest.mark.parametrize(
    ("home", "variable", "folder"),
    [
        ("/home/me", None, "/home/me/.local/state"),
        ("/home/me", "/data", "/data"),
        ("/home/me", "data", "/home/me/.local/state"),
        ("", None, None),
        ("", "/data", "/data"),
        ("me", None, None),
    ],
)
def test_the_users_folder(monkeypatch, home, variable, folder):
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("XDG_STATE_HOME", variable)
    found = folders.users_folder("XDG_STATE_HOME", ".local", "state")
    assert found == (None if folder is None else Path(folder))


def test_the_home_of_nobody_is_none():
    assert folders.expanded("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")
    assert folders.expanded("~/x") == Path.home() / "x"


def test_only_a_leading_tilde_is_the_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("./~/x", "././~/x"):
        assert folders.expanded(folders.expanded(path)) == tmp_path / "~" / "x"


@pytest.mark.parametrize("home", ["", "relative"])
def test_without_a_home_nothing_is_kept_and_no_folder_made_up(tmp_path, monkeypatch, home):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home)
    for name in (folders.STATE_VARIABLE, "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    run = PastRun(target="t", created="2026-01-02T03:04:05+00:00", medians=(0.1,))
    assert calibration.past_runs("m") == ()
    assert calibration.remember("m", run) is None
    assert list(tmp_path.iterdir()) == []
    assert not Path("/.local/state/torchgauge").exists()


def test_a_relative_state_stays_where_the_process_was_started(tmp_path, monkeypatch):
    monkeypatch.setenv(folders.STATE_VARIABLE, "state")
    monkeypatch.chdir(tmp_path)
    assert calibration.path() == Path(folders.STARTED_IN, "state", "calibration.json")
