"""Starting must cost nothing: heavy libraries are imported by the verbs that need them."""

import argparse
import importlib
import json
import os
import subprocess
import sys

import pytest
import torch
from benchmarks import startup
from tests.support import history_runs, records
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.cli.main import VERBS
from torchgauge.cli.parser import PlainHelp
from torchgauge.history.store import Store

HEAVY = {"torch", "numpy", "scipy", "msgspec", "rich", "psutil", "pandas", "sqlalchemy"}
TRACE = ROOT / "tests" / "data" / "tiny_training.json.gz"
LISTED = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"


@pytest.mark.parametrize(
    "code",
    [
        "import torchgauge",
        "import torchgauge; dir(torchgauge); torchgauge.__version__",
        "from torchgauge.cli.main import build; build().format_help()",
    ],
)
def test_nothing_heavy_is_imported(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LISTED}"], capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(done.stdout.split())


# Forked before any verb is imported.
HELPS = """
import os, sys
import torchgauge as tg
from torchgauge.cli.main import VERBS, main
for verb in ("", *VERBS):
    child = os.fork()
    if not child:
        try: main([verb, "--help"] if verb else ["--help"])
        except SystemExit: pass
        imported = [name for name in VERBS if f"torchgauge.cli.{name}" in sys.modules]
        print("imported", *imported, end="\\0", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def helps():
    """What `--help` and that of each verb print, and then the verbs that they imported."""
    done = subprocess.run([sys.executable, "-c", HELPS], capture_output=True, text=True, check=True)
    return dict(zip(("", *VERBS), done.stdout.split("\0")[:-1], strict=True))


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_imports_the_verb_whose_options_it_shows_and_no_other(verb, helps):
    shown, _, imported = helps[verb].rpartition("imported")
    assert shown.startswith(f"usage: torchgauge {verb}".rstrip())
    assert imported.split() == [verb] * bool(verb)


def test_requests_are_made_before_torch_is_imported():
    modules = (
        "advice.budget", "gates.gate_options", "measure.latency.latency_options",
        "measure.timeline.timeline_options", "measure.work.count_options",
        "sweeps.sweep_options", "targets.target", "traces.read_options",
    )  # fmt: skip
    code = "\n".join(f"import torchgauge.{name}" for name in modules)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LISTED}"], capture_output=True, text=True, check=True
    )
    assert {"torch", "numpy", "scipy"}.isdisjoint(done.stdout.split())


def test_every_verb_is_a_module_with_options():
    for name in VERBS:
        module = importlib.import_module(f"torchgauge.cli.{name}")
        assert module.DESCRIPTION.strip()
        assert callable(module.add_arguments)
        assert callable(module.run)


@pytest.mark.parametrize("columns", ["60", "200", "0", "", "none"])
def test_help_in_a_pipe_is_as_wide_as_argparse_makes_it(columns, monkeypatch):
    def no_terminal(*_):
        raise OSError

    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(os, "get_terminal_size", no_terminal)
    theirs = argparse.RawDescriptionHelpFormatter("torchgauge")
    assert PlainHelp("torchgauge")._width == theirs._width


def test_reading_and_showing_a_record_needs_no_torch(tmp_path):
    path = records.profile().save(tmp_path / "run.json")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"import torchgauge as tg; profile = tg.load({str(path)!r})\n"
        "print(profile); profile.to_csv(); profile._repr_html_(); profile.save(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "again.json")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_measuring_without_torch_names_the_extra():
    code = (
        "import importlib.util as u, torchgauge as tg\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "try: tg.measure_size(None)\n"
        "except tg.MissingExtraError as e: print(e.id, e.remedy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "missing-extra pip install 'torchgauge-profiler[torch]'"


@pytest.mark.slow
def test_a_profile_imports_no_compiler_and_no_statistics_package(tmp_path):
    code = (
        "import sys, torch, torchgauge as tg\n"
        "profile = tg.profile(torch.nn.Linear(8, 8), torch.ones(2, 8), iterations=300)\n"
        "assert profile.tree and profile.memory and profile.latency.processes\n"
        "print(*({'torch._inductor', 'sympy', 'scipy.stats'} & set(sys.modules)))"
    )
    own = {**os.environ, "TORCHGAUGE_STATE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=own)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


@pytest.mark.slow
def test_starting_takes_at_most_four_times_an_empty_python():
    medians = startup.measure(rounds=11)
    base = medians.pop("python -c pass")
    assert {name: f"{t / base:.1f}×" for name, t in medians.items() if t > 4 * base} == {}


def test_public_names_are_the_documented_ones():
    import torchgauge as tg

    assert set(tg.__all__) <= set(dir(tg))
    for name in tg.__all__:
        assert getattr(tg, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tg.nonsense


# What Windows has not, and macOS in part.
ELSEWHERE = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getuid", "killpg", "register_at_fork", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_sigmask"):
    delattr(signal, name)
"""


SHOWING = {
    "help": (["--help"], "usage: torchgauge"),
    "profile": (["profile", "--help"], "usage: torchgauge profile"),
    "report": (["report", "run.json"], "In short"),
    "compare": (["compare", "run.json", "run.json"], "params"),
    "gate": (["gate", "run.json", "--baseline", "history:1", "--metric", "params"], "PASS"),
    "history": (["history", "list"], "net.py:make"),
    "trace": (["trace", str(TRACE)], "tiny_training"),
}
IN_TURN = """
import contextlib, io, json
import torchgauge
from torchgauge.cli.main import main
def done(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: code = main(arguments)
        except SystemExit as end: code = end.code
    return code, out.getvalue(), err.getvalue()
print(json.dumps([done(arguments) for arguments in json.loads(sys.argv[1])]))
"""


@pytest.fixture(scope="module")
def shown_elsewhere(tmp_path_factory):
    """The exit code and outputs of each command, of one process without what Linux has."""
    folder = tmp_path_factory.mktemp("elsewhere")
    records.profile().save(folder / "run.json")
    kept_run = history_runs.run()
    with Store.open(str(folder / "h.db")) as store:
        store.add(kept_run)
    commands = [arguments for arguments, _ in SHOWING.values()]
    text = json.dumps(commands).replace("history:1", f"history:{kept_run.run.uuid}")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE + IN_TURN, text],
        cwd=folder,
        env=os.environ | {"TORCHGAUGE_STORE": str(folder / "h.db")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(SHOWING, json.loads(done.stdout), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("command", SHOWING)
def test_what_measures_nothing_works_without_what_linux_alone_has(command, shown_elsewhere):
    code, shown, errors = shown_elsewhere[command]
    assert (code, errors) == (0, "")
    assert SHOWING[command][1] in shown


def test_measuring_with_an_older_torch_names_the_versions_that_serve(monkeypatch):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.7.1+cpu"))
    with pytest.raises(tg.MeasurementError) as error:
        tg.measure_size(torch.nn.Linear(1, 1))
    assert (error.value.id, error.value.message) == (
        "torch-unsupported",
        "torch 2.7.1+cpu is too old.",
    )
    assert error.value.remedy.endswith("2.11 to 2.14.")
