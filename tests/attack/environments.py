"""Odd surroundings of a process: variables, streams, folders, limits; and the verbs run in them."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support import history_runs as runs
from tests.support import records, snapshots

import torchgauge
from torchgauge.history.store import Store

SOURCE = str(Path(torchgauge.__file__).parent.parent)
# Without -m: some of the flags below keep Python from looking where the source is.
PROGRAM = f"""if True:
    import sys
    sys.path.insert(0, {SOURCE!r})
    sys.argv[0] = "torchgauge"
    from torchgauge.cli.main import main
    raise SystemExit(main())
"""
EXIT_CODES = {0, 1, 2, 3, 4, 5, 130}
PATIENCE = 240.0  # seconds, after which a verb counts as hanging
RAW = ("Traceback", "Exception ignored", "Fatal Python error", "Segmentation fault")
TRACE = Path(__file__).parents[1] / "data" / "tiny_training.json.gz"
MODEL = """
import torch
def linear():
    return torch.nn.Linear(4, 4), torch.ones(2, 4)
"""
SCRIPT = """
import torch
from models import linear
model, inputs = linear()
for _ in range(12):
    model(inputs)
"""


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What is odd about a process; `spoils` where a verb may fail for it, with an error of ours.

    Variables that are None are unset; a stream is None (closed) or the path that it leads to;
    `{place}` is the test's folder. `room` is the size of the disk at `{place}/disk` in bytes.
    """

    variables: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    streams: Mapping[int, str | None] = dataclasses.field(default_factory=dict)
    folder: str = "{place}/work"
    mask: int | None = None
    room: int | None = None
    spoils: bool = False


def _with(**variables: str | None) -> Surroundings:
    return Surroundings(variables)


NONSENSE = "\x1b[2J%s\n💥" + "x" * 3000
# Modules are found as here, and no bytecode is left beside the user's own.
_PYTHON = {"PYTHONPATH": os.environ.get("PYTHONPATH"), "PYTHONDONTWRITEBYTECODE": "1"}
SURROUNDINGS = {
    "usual": Surroundings(),
    # homes
    "no HOME": _with(HOME=None),
    "empty HOME": _with(HOME=""),
    "relative HOME": _with(HOME="somewhere"),
    "HOME that cannot be written": _with(HOME="/proc/nowhere"),
    "HOME that is a file": _with(HOME="{place}/run.json"),
    "relative XDG folders": _with(XDG_STATE_HOME="s", XDG_DATA_HOME="d", XDG_CACHE_HOME="c"),
    # folders for a while
    "absent TMPDIR": _with(TMPDIR="{place}/absent"),
    "TMPDIR that is a file": _with(TMPDIR="{place}/run.json"),
    "TMPDIR that cannot be written": _with(TMPDIR="/proc"),
    "full TMPDIR": Surroundings({"TMPDIR": "{place}/disk"}, room=4096, spoils=True),
    "small TMPDIR": Surroundings({"TMPDIR": "{place}/disk"}, room=65536, spoils=True),
    # the working directory
    "removed folder": Surroundings(folder="", spoils=True),
    "folder that cannot be written": Surroundings(folder="/proc"),
    "root folder": Surroundings(folder="/"),
    # streams
    "closed stdin": Surroundings(streams={0: None}),
    "closed stdout": Surroundings(streams={1: None}),
    "closed stderr": Surroundings(streams={2: None}),
    "closed streams": Surroundings(streams={0: None, 1: None, 2: None}),
    "full stdout": Surroundings(streams={1: "/dev/full"}, spoils=True),
    "full stderr": Surroundings(streams={2: "/dev/full"}, spoils=True),
    "stdin without an end": Surroundings(streams={0: "/dev/zero"}),
    # language and width
    "LANG=C": _with(LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
    "LANG of nowhere": _with(LANG="xx_XX.nothing", LC_ALL="tlh_QO"),
    "ASCII streams": _with(PYTHONIOENCODING="ascii"),
    "UTF-16 streams": _with(PYTHONIOENCODING="utf-16"),
    "COLUMNS=0": _with(COLUMNS="0", LINES="0"),
    "COLUMNS=1": _with(COLUMNS="1"),
    "negative COLUMNS": _with(COLUMNS="-7"),
    "huge COLUMNS": _with(COLUMNS="99999999999999999999"),
    "COLUMNS of words": _with(COLUMNS="wide"),
    "odd TERM, forced colours": _with(TERM="dumb", FORCE_COLOR="1", NO_COLOR="1"),
    "NO_COLOR": _with(NO_COLOR="", TERM="xterm-256color"),
    # Python's own
    "PYTHONWARNINGS=error": _with(PYTHONWARNINGS="error"),
    "PYTHONHASHSEED": _with(PYTHONHASHSEED="4294967295"),
    "PYTHONDEVMODE": _with(PYTHONDEVMODE="1"),
    "-O": Surroundings(flags=("-O",)),
    "-OO": Surroundings(flags=("-OO",)),
    # Not -I, with which a script does not find the modules beside it, here as in Python.
    "-E -s -B": Surroundings(flags=("-E", "-s", "-B")),
    "-X importtime, -b": Surroundings(flags=("-b", "-X", "importtime")),
    # limits
    "few files": Surroundings(limits={"NOFILE": 48}, spoils=True),
    "few processes": Surroundings(limits={"NPROC": 1}, spoils=True),
    "little memory": Surroundings(limits={"AS": 2**30}, spoils=True),
    "some memory": Surroundings(limits={"AS": 3 * 2**30}, spoils=True),
    "no room in files": Surroundings(limits={"FSIZE": 0}, spoils=True),
    "little room in files": Surroundings(limits={"FSIZE": 20_000}, spoils=True),
    "no core, small stack": Surroundings(limits={"CORE": 0, "STACK": 2**21}),
    # modes
    "mask of all modes": Surroundings(mask=0o777),
    "mask of no modes": Surroundings(mask=0),
    # ours and others'
    "nonsense in our variables": Surroundings(
        {"TORCHGAUGE_STATE": NONSENSE, "TORCHGAUGE_STORE": NONSENSE}
    ),
    "our variables lead to devices": _with(
        TORCHGAUGE_STATE="/dev/null", TORCHGAUGE_STORE="mysql://me:secret@nowhere/db"
    ),
    "a workflow that cannot be told": _with(
        GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY="{place}/pipe"
    ),
    "no PATH": _with(PATH=None),
    "PATH of nothing": _with(PATH="/nowhere"),
    "threads of nonsense": _with(OMP_NUM_THREADS="many", MKL_NUM_THREADS="-1"),
    "nothing but Python": Surroundings(
        dict.fromkeys(os.environ) | _PYTHON
    ),
}  # fmt: skip

OUT = ("--output-dir", "{place}/out")
STORE = ("--store", "{place}/history.db")
# Verbs that need no torch, and what they say where nothing is odd.
READING = {
    "report": (("{place}/run.json", "--html", "{place}/out/page.html", *OUT), 0),
    "compare": (("{place}/run.json", "{place}/run.json", *OUT), 0),
    "gate": (("--baseline", "{place}/run.json", "{place}/run.json", *OUT), 4),
    "trace": (("{place}/trace.json.gz", *OUT), 0),
    "snapshot": (("{place}/snapshot.pickle", *OUT), 0),
    "history add": (("{place}/new.json", *STORE), 0),
    "history list": (STORE, 0),
    "history show": (("latest", *STORE), 0),
    "history label": (("latest", "host=quiet", *STORE), 0),
    "history trend": ((*STORE, "--html", "{place}/out/trend.html"), 0),
    "history export": ((*STORE, "--output", "{place}/out/runs.jsonl"), 0),
    "history prune": ((*STORE, "--keep-last", "1"), 0),
}
TARGET = "{place}/models.py:linear"
QUICK = ("--iterations", "3", "--warmup", "1")
MEASURING = {
    "count": ((TARGET, *OUT), 0),
    "profile": ((TARGET, *QUICK, "--no-roofs", "--trace", "{place}/out/trace.json", *OUT), 0),
    "run": ((*OUT, "--record", "2", "{place}/script.py"), 0),
    "sweep": ((TARGET, "--batch", "1", *QUICK, *OUT), 0),
    "advise": ((TARGET, "--candidates", "threads-one", "--budget", "120", *OUT), 0),
    "doctor": (("--quick",), 0),
}
VERBS = READING | MEASURING


def furnish(place: Path) -> Path:
    """Put into a new folder what the verbs need, and return it."""
    for name in ("work", "home", "tmp", "out", "disk"):
        (place / name).mkdir()
    records.profile().save(place / "run.json")
    runs.profile(latency=0.02).save(place / "new.json")
    (place / "trace.json.gz").write_bytes(TRACE.read_bytes())
    snapshots.written(snapshots.step(), place / "snapshot.pickle")
    (place / "models.py").write_text(MODEL)
    (place / "script.py").write_text(SCRIPT)
    os.mkfifo(place / "pipe")
    with Store.open(str(place / "history.db")) as store:
        for day in range(3):
            store.add(runs.run(day))
    return place


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a verb ended; `code` is None where it had to be killed."""

    code: int | None
    output: str
    left: frozenset[str]


def ended(verb: str, surroundings: Surroundings, place: Path) -> Ended:
    """Run a verb in the surroundings and return how it ended, and which files it left."""
    arguments, _ = VERBS[verb]
    command = [sys.executable, *surroundings.flags, "-c", PROGRAM, *verb.split()]
    command += [one.format(place=place) for one in arguments]
    before = _files(place)
    with subprocess.Popen(
        command,
        env=_variables(surroundings, place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if 1 not in surroundings.streams else subprocess.PIPE,
        preexec_fn=lambda: _enter(surroundings, place),
        start_new_session=True,
    ) as process:
        try:
            texts = process.communicate(timeout=PATIENCE)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            texts, code = process.communicate(), None
    output = b"".join(filter(None, texts)).decode(errors="replace")
    return Ended(code, output, frozenset(_files(place) - before))


def _variables(surroundings: Surroundings, place: Path) -> dict[str, str]:
    known = {
        **os.environ,
        "HOME": f"{place}/home",
        "TMPDIR": f"{place}/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("TORCHGAUGE_STATE", "TORCHGAUGE_STORE", "COLUMNS"):
        known.pop(name, None)
    for name, value in surroundings.variables.items():
        known.pop(name, None)
        if value is not None:
            known[name] = value.replace("{place}", str(place))
    return known


def _enter(surroundings: Surroundings, place: Path) -> None:
    """Make the process odd; runs in the child, before Python is started there."""
    folder = surroundings.folder.replace("{place}", str(place))
    if not folder:
        gone = place / "removed"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
    else:
        os.chdir(folder)
    if surroundings.mask is not None:
        os.umask(surroundings.mask)
    for stream, leads_to in surroundings.streams.items():
        os.close(stream)
        if leads_to is not None:
            os.dup2(os.open(leads_to, os.O_RDWR), stream)
    for name, value in surroundings.limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _files(place: Path) -> set[str]:
    """Return what lies in the test's folder, beside what was asked for and is the user's state.

    Importing torch's compiler makes torch's cache, an empty folder of its own.
    """
    found = {str(path.relative_to(place)) for path in place.rglob("*")}
    asked = ("out/", "home/.local/state/torchgauge", "history.db-", "disk/", "tmp/torchinductor_")
    stray = {str(path) for path in Path("/").iterdir()}
    return stray | {
        name
        for name in found
        if not name.startswith(asked) and name not in ("home/.local", "home/.local/state")
    }
