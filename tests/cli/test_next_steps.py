"""What is suggested after a profile: commands that work when they are pasted."""

import shlex
import stat
from pathlib import Path

import pytest
from tests.support.records import profile as sample

from torchgauge.cli import main as command_line
from torchgauge.cli.main import VERBS, main
from torchgauge.cli.steps.next_steps import MAX_STEPS, OF_TARGETS, steps, typed_words

NET = """
import torch
from torch import nn

def net():
    return nn.Linear(8, 4), torch.ones(2, 8)
"""
GIVEN = (
    ["profile", "my models/net.py:net"],
    ["profile", "torchvision:resnet18", "--batch", "4", "--precision", "bf16", "--device", "cpu"],
    ["profile", "timm:vit", "--input", "x=1x3x8x8", "--input", "y=2:int64<5", "--train"],
    ["profile", "hf:bert", "--quick", "--loss", "a.py:loss", "--optimizer", "sgd", "--train"],
    ["profile", "net.pt2", "--trust", "--weights", "w x.pt", "-o", "out dir/a.json"],
)


def options_of(arguments):
    return command_line.build(VERBS).parse_args(arguments)


@pytest.mark.parametrize("arguments", GIVEN, ids=lambda given: given[1])
def test_each_step_is_a_command_about_the_same_target(arguments):
    options = options_of(arguments)
    commands = [command for command, _ in steps(sample(), options)]
    assert 1 <= len(commands) <= MAX_STEPS
    for command in commands:
        program, *rest = shlex.split(command)
        assert program == "torchgauge"
        again = options_of(rest)
        if rest[0] in ("profile", "advise"):
            assert typed_words(again, OF_TARGETS) == typed_words(options, OF_TARGETS)


def test_how_a_program_was_lowered_is_given_again():
    options = options_of(["profile", "m.pte", "--etrecord", "m.etrecord", "--trust"])
    again = options_of(["profile", *typed_words(options, OF_TARGETS)])
    assert again.etrecord == options.etrecord
    assert again.etrecord is not None


def test_a_saved_profile_is_shown_without_measuring_again():
    options = options_of(GIVEN[-1])
    assert "torchgauge report 'out dir/a.json' --open" in dict(steps(sample(), options))


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The arguments that show a saved run, as a profile is shown once it is measured."""
    sample().save(tmp_path / "run.json")
    monkeypatch.chdir(tmp_path)
    return ["report", "run.json"]


@pytest.fixture
def net(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return ["profile", "net.py:net", "--quick", "--detail", "summary", "--no-roofs"]


@pytest.mark.thorough
def test_files_are_written_in_the_format_of_their_suffix(net, capsys):
    names = ["a.json", "b.HTML", "c.md", "d.csv", "e.txt", "f.prom", "g.speedscope.json"]
    outputs = [part for name in names for part in ("-o", name)]
    assert main([*net[:-3], "--no-roofs", *outputs]) == 0
    begins = [
        '{\n "schema": "torchgauge.profile',
        "<!doctype html>",
        "### ",
        "",
        "Linear",
        "#",
        "{",
    ]
    for name, begin in zip(names, begins, strict=True):
        assert Path(name).read_text().lower().startswith(begin.lower()), name
    assert "$schema" in Path("g.speedscope.json").read_text()
    out = capsys.readouterr().out
    assert out.rstrip().splitlines()[-1].endswith("# the same as a page")
    assert "torchgauge report a.json --open" in out


def test_a_suffix_that_names_no_format_is_refused_before_anything_runs(net, capsys):
    assert main([*net, "-o", "a.docx"]) == 2
    assert "is not a known format" in capsys.readouterr().err


@pytest.mark.thorough
def test_the_page_is_opened_in_the_browser(net, tmp_path, monkeypatch, capsys):
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > opened\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    assert main([*net, "-o", "page.html", "--open"]) == 0
    assert Path("opened").read_text().strip() == (tmp_path / "page.html").as_uri()


def test_without_a_browser_it_is_said_where_the_page_is(report, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BROWSER", str(tmp_path / "none"))
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main([*report, "--open"]) == 0
    assert (tmp_path / "cache/torchgauge/run.html").exists()
    assert "open " in capsys.readouterr().err


def test_without_a_home_the_page_needs_a_name(report, monkeypatch, capsys):
    monkeypatch.setenv("HOME", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert main([*report, "--open"]) == 2
    assert "-o page.html --open" in capsys.readouterr().err


@pytest.mark.thorough
def test_junit_is_written_of_the_verdict(net):
    assert main([*net, "--threshold", "params:1M", "-o", "v.junit.xml", "-o", "p.json"]) == 0
    assert "<testsuite" in Path("v.junit.xml").read_text()
    assert Path("p.json").exists()
