"""The wheel: what it says of itself, and what it does in an environment without any extra."""

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata

import pytest
from tests.support import history_runs as runs
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRACE = ROOT / "tests" / "data" / "traces" / "h100_qwen_0.5b.json.gz"
# The command line from the unpacked wheel, where nothing but its core dependencies can be imported.
PLAIN = """
import importlib.abc, sys
folder, absent = sys.argv[1], set(sys.argv[2].split(","))
sys.path.insert(0, folder)

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in absent:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)

sys.meta_path.insert(0, Absent())
import torchgauge
from torchgauge.cli.main import main
assert torchgauge.__file__.startswith(folder)
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the folder of the unpacked wheel, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "content")
    return folder / "content"


@pytest.fixture(scope="module")
def facts(wheel):
    (path,) = wheel.glob("*.dist-info/METADATA")
    return email.message_from_string(path.read_text())


def further_modules():
    """Return the installed modules that neither a core dependency nor one of its own brings."""
    modules_of = {}
    for module, names in metadata.packages_distributions().items():
        for name in names:
            modules_of.setdefault(plain(name), set()).add(module)
    pending, distributions = list(PROJECT["dependencies"]), set()
    while pending:
        requirement = pending.pop()
        name = plain(re.match(r"[\w.-]+", requirement)[0])
        if name in distributions or "extra ==" in requirement:
            continue
        distributions.add(name)
        if name in modules_of:  # else its marker is of another platform
            pending += metadata.requires(name) or []
    core = {module for name in distributions for module in modules_of.get(name, ())}
    return set(metadata.packages_distributions()) - core - {"torchgauge"}


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.thorough
def test_the_metadata_says_what_the_package_is(facts):
    assert facts["Name"] == "torchgauge-profiler"
    assert facts["License-Expression"] == "Apache-2.0"
    assert facts["License-File"] == "LICENSE"
    assert facts["Author"] == "The torchgauge developers"
    assert "profiler" in facts["Keywords"]
    assert facts["Requires-Python"] == ">=3.11"
    classifiers = facts.get_all("Classifier")
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(classifiers)
    # PEP 639: a license is an expression or a classifier.
    assert not [name for name in classifiers if name.startswith("License ::")]


@pytest.mark.thorough
def test_the_description_leads_nowhere_that_the_package_does_not_have(facts):
    assert facts["Description-Content-Type"] == "text/markdown"
    text = facts.get_payload()
    assert text.startswith("# torchgauge")
    assert "## What it is for" in text
    assert not re.findall(r"<(?:img|picture|source)|\]\((?!https://)", text)


def test_all_has_every_extra_that_users_may_want():
    extras = PROJECT["optional-dependencies"]

    def expanded(name):
        for requirement in extras[name]:
            own = re.fullmatch(r"torchgauge-profiler\[(.*)\]", requirement)
            yield from (
                (inner for extra in own[1].split(",") for inner in expanded(extra))
                if own
                else [requirement]
            )

    developing = {"all", "browser", "dev", "docs"}
    assert set(expanded("all")) == {
        requirement for name in extras.keys() - developing for requirement in expanded(name)
    }


def test_every_classified_python_is_allowed():
    pythons = [name for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert [name.rpartition(" ")[2] for name in pythons] == ["3.11", "3.12", "3.13"]


@pytest.mark.thorough
def test_the_wheel_has_what_the_package_reads(wheel):
    package = wheel / "torchgauge"
    assert (package / "py.typed").is_file()
    sources = ROOT / "src" / "torchgauge"
    expected = {
        path.relative_to(sources)
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.relative_to(package) for path in package.rglob("*") if path.is_file()} == expected


def test_the_wheel_installs_the_manual_page(wheel):
    (page,) = wheel.glob("*.data/data/share/man/man1/*")
    assert page.name == "torchgauge.1"
    assert page.read_bytes() == (ROOT / "docs" / "man" / "torchgauge.1").read_bytes()


@pytest.mark.slow
def test_history_and_traces_ask_for_no_extra(wheel, tmp_path):
    absent = further_modules()
    assert {"torch", "pandas", "pyarrow", "psycopg"} <= absent

    def act(*words):
        done = subprocess.run(
            [sys.executable, "-c", PLAIN, wheel, ",".join(absent), *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "extra" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    assert act("--help")[0] == 0
    for day in range(12):
        profile = runs.profile(day, 0.010 if day < 6 else 0.020)
        profile.save(tmp_path / f"{day:02}.json")
    added = act("history", "add", *sorted(tmp_path.glob("*.json")), "--store", "h.db")
    assert added[0] == 0, added[2]
    listed = act("history", "list", "--store", "h.db")
    assert listed[0] == 0, listed[2]
    assert len(listed[1].splitlines()) >= 12
    trend = act("history", "trend", "--metric", "latency_median", "--store", "h.db")
    assert trend[0] == 0, trend[2]
    assert "▲ +100" in trend[1]
    (tmp_path / "alerts.toml").write_text(
        '[[change]]\nname = "slower"\nmetric = "latency_median"\n'
    )
    alerts = act("history", "trend", "--alerts", "alerts.toml", "--store", "h.db")
    assert (alerts[0], alerts[1].split(":")[0]) == (3, "ALERT slower")
    trace = act("trace", TRACE)
    assert trace[0] == 0, trace[2]
