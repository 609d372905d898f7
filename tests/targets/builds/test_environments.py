"""Other environments as homes of builds: interpreters that a test makes, and those of pip."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from torchgauge.errors import InputError
from torchgauge.targets.builds import environments
from torchgauge.targets.builds.environments import NEEDS, Environment, environment_home
from torchgauge.version import version

HERE = Path(sysconfig.get_path("purelib"))
SAYS = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "


def packages_of(folder):
    return Path(
        sysconfig.get_path("purelib", "venv", vars=dict.fromkeys(("base", "platbase"), str(folder)))
    )


@pytest.fixture
def other(tmp_path):
    """A new environment with a torch of its own, which is a single line."""
    folder = tmp_path / "other"
    venv.create(folder, symlinks=True)
    (packages_of(folder) / "torch.py").write_text("__version__ = '9'")
    return folder


def python(folder):
    return str(folder / "bin" / "python")


def says(home, code):
    """Return what the interpreter of a home prints with its path."""
    command = [home.python, "-I", "-c", SAYS + code, json.dumps(home.path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def error_of(environment, **options):
    with pytest.raises(InputError) as caught, environment_home(environment, **options):
        pass
    return caught.value


def test_this_environment_is_no_home_of_its_own():
    with environment_home(Environment()) as home:
        assert home is None


def test_what_torchgauge_needs_is_carried_where_it_is_absent(other):
    with environment_home(Environment(python(other))) as home:
        assert home.python == python(other)
        code = "import torch, msgspec, numpy, torchgauge; from torchgauge.version import version; "
        code += "print(torch.__version__, msgspec.__version__, version(), numpy.__file__)"
        torch, msgspec, own, numpy = says(home, code).split()
        assert (torch, own) == ("9", version())
        assert msgspec == __import__("msgspec").__version__
        assert Path(numpy).resolve().is_relative_to(HERE.resolve())
        assert str(HERE) not in home.path
        assert str(packages_of(other)) in home.path
    assert not Path(home.path[0]).exists()


def test_its_own_packages_come_before_ours_but_for_torchgauge(other):
    for name in ("msgspec", "torchgauge"):
        (packages_of(other) / f"{name}.py").write_text("")
    with environment_home(Environment(python(other))) as home:
        code = "import msgspec, torchgauge; print(msgspec.__file__, torchgauge.__file__)"
        theirs, ours = map(Path, says(home, code).split())
    assert theirs.parent == packages_of(other)
    assert ours.name == "__init__.py"


def test_the_users_folders_stay_and_this_environments_do_not(other, monkeypatch, tmp_path):
    entries = [str(tmp_path), *(entry for entry in sys.path if entry not in ("", str(tmp_path)))]
    monkeypatch.setattr(sys, "path", entries)
    with environment_home(Environment(python(other))) as home:
        assert home.path[1] == str(tmp_path)
        assert [entry for entry in home.path if Path(entry) == HERE] == []


def test_without_torch_it_says_what_to_install(other):
    (packages_of(other) / "torch.py").unlink()
    error = error_of(Environment(python(other)))
    assert error.id == "base-python-lacks"
    assert error.remedy == f"{python(other)} -m pip install torch"


@pytest.fixture
def fake(tmp_path):
    """Return what makes an interpreter that only answers: of a version, lacking packages."""

    def make(version, *absent, suffixes=(".cpython-312-x86_64-linux-gnu.so", ".so")):
        facts = {"version": version, "path": ["/lib"], "suffixes": suffixes, "absent": absent}
        file = tmp_path / "fake"
        file.write_text(f"#!/bin/sh\necho hello\necho '{json.dumps(facts)}'\n")
        file.chmod(0o700)
        return Environment(str(file))

    return make


def test_another_python_takes_what_is_pure_and_must_have_the_rest(fake):
    with environment_home(fake([3, 12], "cloudpickle")) as home:
        assert Path(home.path[-1], "cloudpickle", "__init__.py").exists()
    error = error_of(fake([3, 12], *NEEDS[1:]))
    assert error.id == "base-python-lacks"
    assert error.remedy.endswith(" -m pip install msgspec numpy psutil scipy")


def test_an_old_python_is_refused_and_another_one_for_what_travels_by_value(fake):
    error = error_of(fake([3, 10]))
    assert (error.id, "Python 3.10" in error.message) == ("base-python-version", True)
    assert error.remedy.endswith("at least Python 3.11.")
    newer = [sys.version_info[0], sys.version_info[1] + 1]
    with environment_home(fake(newer)):
        pass
    assert error_of(fake(newer), by_value=True).id == "base-python-version"
    with environment_home(fake(sys.version_info[:2]), by_value=True):
        pass


@pytest.mark.parametrize("name", ["false", "nowhere/python", "."])
def test_what_is_no_python_is_said(name):
    assert error_of(Environment(name)).id == "base-env-failed"


def test_an_environment_is_not_built_and_named_at_once():
    with pytest.raises(InputError) as caught:
        Environment("python", build=True)
    assert caught.value.id == "option-conflict"


@pytest.fixture
def installs(tmp_path, monkeypatch):
    """Environments are made by hand; the list has those that were."""
    made = []

    def install(folder, requirements, _python):
        made.append(requirements)
        folder.mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environments, "_install", install)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def open_requirements(file):
    return environments._requirements_python(file, sys.executable)


def test_an_environment_of_requirements_is_made_once(installs, tmp_path):
    file = tmp_path / "old.txt"
    file.write_text("torch==2.11.0\n")
    first = open_requirements(file)
    assert Path(first).is_relative_to(tmp_path / "cache" / "torchgauge" / "environments")
    assert open_requirements(file) == first
    assert installs == [["--requirement", str(file)]]
    file.write_text("torch==2.12.0\n")
    assert open_requirements(file) != first
    assert len(installs) == 2


@pytest.mark.parametrize("line", [".", "-r more.txt", "--constraint=more.txt"])
def test_an_environment_of_what_may_change_is_made_anew(installs, tmp_path, line):
    (tmp_path / "more.txt").touch()
    file = tmp_path / "local.txt"
    file.write_text(f"{line}\n")
    assert open_requirements(file) == open_requirements(file)
    assert len(installs) == 2


def test_an_environment_that_failed_is_not_kept(installs, monkeypatch, tmp_path):
    def fails(folder, *_):
        folder.mkdir(parents=True)
        raise environments._failed("installing into it", "ERROR: no such version")

    monkeypatch.setattr(environments, "_install", fails)
    file = tmp_path / "old.txt"
    file.write_text("torch==0\n")
    assert error_of(Environment(requirements=str(file))).id == "base-env-failed"
    assert list((tmp_path / "cache" / "torchgauge" / "environments").iterdir()) == []
    assert error_of(Environment(requirements=str(tmp_path / "none.txt"))).id == "file-missing"


def test_of_what_pip_said_the_errors_are_shown():
    code = "print('Collecting x'); print('ERROR: no x'); print('[notice] pip'); raise SystemExit(1)"
    with pytest.raises(InputError) as caught:
        environments._run([sys.executable, "-c", code], "installing into it")
    assert caught.value.cause == "ERROR: no x"


@pytest.mark.slow
def test_an_environment_that_pip_makes(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "old.txt"
    file.write_text("# nothing\n")
    error = error_of(Environment(requirements=str(file)))
    assert (error.id, error.remedy) == ("base-python-lacks", f"Add to {file}: torch")
    assert len(list((tmp_path / "torchgauge" / "environments").iterdir())) == 1
