"""Commands that outputs suggest: the real parser takes them, and the files they name are there."""

import ast
import contextlib
import re
import shlex
from pathlib import Path

import pytest
from tests.support import advices, counts, records, verdicts
from tests.support.mistakes import MISTAKES, printed, write_files

import torchgauge
from torchgauge.cli.main import VERBS, build
from torchgauge.errors import InputError
from torchgauge.report.console.console import view
from torchgauge.report.console.plain import plain

SOURCES = sorted(Path(torchgauge.__file__).parent.rglob("*.py"))
# A command stands between backticks, or ends its line.
NAMED = re.compile(rf"\btorchgauge (?:{'|'.join(VERBS)})\b")
# What a file has that names a command, in one text or in two that are joined.
MAY_NAME = re.compile(r"torchgauge(?: (?!import\b|as\b)|[\"'\\])")
COMMAND = re.compile(
    rf"`(torchgauge (?:{'|'.join(VERBS)})\b[^`]*)`|(torchgauge (?:{'|'.join(VERBS)})\b[^`\n]*)$",
    re.MULTILINE,
)
PLACEHOLDER = re.compile(r"[A-Z]+(\.json)?|results/profile\.json")
NUMBER = "8"
FILLED = "json"  # a format, and as good a name of a target as any


def commands(text: str) -> list[str]:
    """Return the commands that a text suggests; all that it names must be whole ones."""
    suggested = [quoted or last for quoted, last in COMMAND.findall(text)]
    assert len(NAMED.findall(text)) == len(suggested), text
    return suggested


def check(command: str, folder: Path | None = None) -> None:
    """Parse a command as `torchgauge` would, and look for the files that it names."""
    words = shlex.split(command)[1:]
    try:
        with contextlib.suppress(SystemExit):  # --help
            build({words[0]}).parse_args(words)
    except InputError as error:
        raise AssertionError(f"{command}: {error}") from error
    for word in words[1:] if folder is not None else ():
        name = word.rpartition(":")[0] or word
        if name.endswith((".py", ".json", ".txt", ".gz")) and not PLACEHOLDER.fullmatch(name):
            assert (folder / name).exists(), command


@pytest.mark.parametrize("name", ["", "with spaces"])
def test_what_mistakes_suggest_can_be_pasted(name, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    write_files(folder)
    monkeypatch.chdir(folder)
    suggested = []
    for mistake in MISTAKES:
        if mistake.code == 2 and not name:
            _, errors, _ = printed(mistake)
            text = "\n".join(line for line in errors.splitlines() if not _is_usage(line))
            suggested += commands(text)
    if name:
        (folder / "run.json").rename(folder / "my run.json")
        (folder / "models.py").rename(folder / "my models.py")
        for arguments in (
            ["trace", "my run.json"],
            ["compare", "my run.json", "my models.py:make"],
            ["gate", "my models.py:make"],
            ["report", "my models.py:make"],
            ["my models.py:make"],
        ):
            suggested += commands(printed(arguments)[1])
    assert len(suggested) >= 5
    for command in suggested:
        check(command, folder)


def _is_usage(line: str) -> bool:
    return line.startswith("usage: ")


SHOWN = {
    "profile": records.profile,
    "count": counts.counted,
    "advice": advices.advice,
    **{f"verdict: {name}": lambda name=name: verdicts.every()[name] for name in verdicts.every()},
}


@pytest.mark.parametrize("kind", SHOWN)
def test_what_summaries_suggest_can_be_pasted(kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")  # no command is cut by the end of a line
    text = plain(lambda width: view(SHOWN[kind](), width=width))
    for command in commands(text):
        check(command)


def _texts(path: Path) -> list[str]:
    """Return the texts of a file that are not documentation; what is filled in is FILLED."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    parts = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node) if part is not node
    }  # fmt: skip
    texts = []
    for node in ast.walk(tree):
        if id(node) in documentation | parts:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            texts.append(
                "".join(
                    str(part.value)
                    if isinstance(part, ast.Constant)
                    else FILLED
                    if part.format_spec is None
                    else NUMBER
                    for part in node.values
                )
            )
    return texts


@pytest.mark.thorough
def test_every_command_that_the_program_may_suggest_is_whole():
    suggested = []
    for path in SOURCES:
        if not MAY_NAME.search(path.read_text(encoding="utf-8")):
            continue
        if path.parent.name == "cli" and path.stem in VERBS:
            texts = [text for text in _texts(path) if "\n  torchgauge" not in text]
        else:
            texts = _texts(path)
        for text in texts:
            if NAMED.search(text) and "\n  torchgauge" not in text:
                suggested += commands(text)
    assert len(suggested) >= 20
    for command in suggested:
        check(command)
