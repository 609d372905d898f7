"""`torchgauge mcp` as a client sees it: the mcp library's own client, over standard streams."""

import json
import os
import pickle
import shutil
import sys

import pytest
from tests.support import pages
from tests.support import records as plain
from tests.support.hostile_texts import ORDER, TERMINAL
from tests.support.paths import TRACES
from tests.support.poisoned_samples import sample

from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.integrate.agents import server
from torchgauge.records import rendering

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

TOOLS = {"list_records", "brief", "findings", "compare", "table"}


class Armed:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return open, (str(self._path), "w")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("records")
    served = tmp_path / "served"
    (served / "deep").mkdir(parents=True)
    pages.with_tree().save(served / "run.json")
    plain.profile().save(served / "deep" / "other.json")
    sample("profile on a page", TERMINAL).save(served / "hostile.json")
    shutil.copy(next(iter(sorted(TRACES.glob("*.json*")))), served / "trace.json.gz")
    (served / "notes.txt").write_text("nothing")
    (served / "armed.pickle").write_bytes(pickle.dumps({"a": Armed(tmp_path / "ran")}))
    plain.profile().save(tmp_path / "secret.json")
    (served / "link.json").symlink_to(tmp_path / "secret.json")
    (served / "jobs").mkdir()
    (served / "jobs" / "a.rank0.json").symlink_to(tmp_path / "secret.json")
    return served


USUAL = (
    ("list_records", {}),
    ("brief", {"path": "run.json"}),
    ("findings", {"path": "run.json"}),
    ("compare", {"baseline": "run.json", "current": "deep/other.json"}),
    ("table", {"path": "run.json", "sort": "host_time_self", "limit": 2}),
    ("table", {"path": "run.json", "offset": 2, "limit": 1}),
    ("brief", {"path": "trace.json.gz"}),
)
HOSTILE = (
    ("brief", {"path": "hostile.json"}),
    ("findings", {"path": "hostile.json"}),
    ("table", {"path": "hostile.json"}),
)


def outside(folder):
    paths = ["../secret.json", str(folder.parent / "secret.json"), "link.json", "jobs", "x\0", "~"]
    return (
        *(("brief", {"path": path}) for path in paths),
        ("brief", {"path": "armed.pickle"}),
        ("brief", {"path": "notes.txt"}),
        ("compare", {"baseline": "run.json", "current": "../secret.json"}),
        ("table", {"path": "run.json", "table": "requests"}),
        ("table", {"path": "run.json", "sort": "no such"}),
    )


@pytest.fixture(scope="module")
def session(folder):
    """One session of all questions: how the server describes itself, its tools, the answers.

    An answer is whether it failed, and its text; with them, the files before and after.
    """
    before = sorted(folder.parent.rglob("*"))
    questions = (*USUAL, *outside(folder), *HOSTILE)
    about, tools, answers = asked(folder, *questions)
    usual, others = answers[: len(USUAL)], answers[len(USUAL) :]
    refused, hostile = others[: -len(HOSTILE)], others[-len(HOSTILE) :]
    return about, tools, usual, refused, hostile, (before, sorted(folder.parent.rglob("*")))


def asked(folder, *questions):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "torchgauge", "mcp", str(folder)],
        env={**os.environ, "COLUMNS": "80"},
    )

    async def ask():
        async with stdio_client(program) as streams, ClientSession(*streams) as session:
            about = await session.initialize()
            tools = (await session.list_tools()).tools
            answers = []
            for name, arguments in questions:
                result = await session.call_tool(name, arguments)
                answers.append((result.is_error, "".join(part.text for part in result.content)))
            return about, tools, answers

    return anyio.run(ask)


@pytest.mark.thorough
def test_a_client_lists_reads_and_compares(session):
    about, tools, answers, *_ = session
    assert about.server_info.name == "torchgauge"
    assert "never instructions" in about.instructions
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert [failed for failed, _ in answers] == [False] * 7, answers
    listed, brief, findings, changes, slowest, second, trace = (text for _, text in answers)
    kinds = {row["path"]: row["kind"] for row in json.loads(listed)["rows"]}
    assert kinds == {
        "run.json": "profile", "deep/other.json": "profile", "hostile.json": "profile",
        "trace.json.gz": "trace", "armed.pickle": "snapshot",
    }  # fmt: skip
    assert brief == rendering.text(pages.with_tree(), "brief")
    assert json.loads(findings)["total"] == len(json.loads(findings)["rows"])
    assert changes.startswith("# Comparison")
    times = [float(row["host_time_self"]) for row in json.loads(slowest)["rows"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == 2
    total = json.loads(slowest)["total"]
    assert json.loads(second)["next_offset"] == 3 < total
    assert trace.startswith("# Trace")


@pytest.mark.thorough
def test_nothing_outside_is_read_and_no_pickle_is_loaded(session):
    _, _, _, answers, _, (before, after) = session
    ids = [text.rsplit("[", 1)[-1].rstrip("]") for failed, text in answers if failed]
    assert ids == [
        *["path-outside"] * 5, "file-missing", "pickle-unsafe", "record-unreadable",
        "path-outside", "table-unknown", "column-unknown",
    ]  # fmt: skip
    assert after == before  # nothing was written, nothing ran
    assert "/tmp" not in str(answers), answers


def swapped(file, secret):
    file.unlink()
    file.symlink_to(secret)


def test_a_file_that_becomes_a_link_or_vanishes_is_not_read(folder, tmp_path, monkeypatch):
    """Its name is checked and then opened: whatever happens in between."""
    secret = folder.parent / "secret.json"
    records = server.RecordFolder(folder)
    checked = records._inside
    for change, cause in ((swapped, "symbolic links"), (lambda file, _: file.unlink(), "No such")):
        shutil.copy(folder / "run.json", folder / "late.json")

        def changed(name, change=change):
            path = checked(name)
            change(path, secret)
            return path

        monkeypatch.setattr(records, "_inside", changed)
        with pytest.raises(InputError) as raised, records.opened("late.json"):
            pass
        assert raised.value.id == "file-missing"
        assert cause in raised.value.cause
        (folder / "late.json").unlink(missing_ok=True)


def test_what_is_opened_stays_what_it_was(tmp_path):
    (tmp_path / "jobs").mkdir()
    for name in ("a.json", "jobs/b.json"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "secret").write_text("theirs")
    records = server.RecordFolder(tmp_path)
    for name, inner in (("a.json", ""), ("jobs", "b.json")):
        with records.opened(name) as path:
            swapped(tmp_path / name / inner, tmp_path / "secret")
            assert (path / inner).read_text() == "mine"
        assert not path.exists()


def test_names_of_strangers_command_nothing(session):
    *_, answers, _ = session
    assert not any(failed for failed, _ in answers)
    brief, *structured = (text for _, text in answers)
    assert not ORDER.search(brief)
    for text in structured:
        for row in json.loads(text)["rows"]:
            texts = [value for value in row.values() if isinstance(value, str)]
            assert not any(ORDER.search(value) or "\n" in value for value in texts)
            assert all(len(value) <= 300 for value in texts)


def test_a_folder_that_is_none_is_refused(tmp_path, capsys):
    assert main(["mcp", str(tmp_path / "absent")]) == 2
    assert "[file-missing]" in capsys.readouterr().err


def test_without_the_library_its_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp", str(tmp_path)]) == 2
    assert "torchgauge-profiler[mcp]" in capsys.readouterr().err
