"""The manual page: current, with every verb and option, and readable without a warning."""

import argparse
import importlib.util
import re
import shutil
import subprocess

import pytest
from tests.support.paths import ROOT

from torchgauge.cli.main import VERBS, build

PAGE = ROOT / "docs" / "man" / "torchgauge.1"


def written():
    spec = importlib.util.spec_from_file_location("write", PAGE.with_name("write.py"))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.page()


def test_it_is_current():
    assert PAGE.read_text() == written(), "python docs/man/write.py"


def parsers(parser):
    yield parser
    for action in parser._actions:
        if action.nargs == argparse.PARSER:
            for verb in action.choices.values():
                yield from parsers(verb)


def test_it_has_every_verb_and_option():
    text = PAGE.read_text()
    assert re.findall(r"^\.SH ([A-Z]+)$", text, re.MULTILINE)[3:] == [
        name.upper() for name in VERBS
    ]
    options = {name for parser in parsers(build()) for name in parser._option_string_actions}
    plain = text.replace(r"\-", "-")
    assert not [name for name in options - {"-h", "--help"} if f".B {name}" not in plain
                and f", {name}" not in plain]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-Tutf8", "-ww", "-z"]],
    ids=["mandoc", "groff"],
)
def test_it_is_read_without_a_warning(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([*command, PAGE], capture_output=True, text=True, check=False)
    # It has no date: it is of the version with which it was installed.
    warnings = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert (warnings, done.stderr) == ([], "")


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_a_table_of_a_description_stays_a_table():
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", PAGE], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.strip() for line in shown.splitlines()]
    assert (
        "file.py:factory, package.module:factory   a function that returns a model or "
        "(model, inputs)" in lines
    )
