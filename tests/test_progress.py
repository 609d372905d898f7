"""What is shown of long work: on a terminal, in a notebook, in a pipe."""

import io
import re
import sys

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge import progress
from torchgauge.cli.main import main
from torchgauge.progress import LINE_PERIOD, NotebookProgress, PipeProgress, Silent


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


class Handle:
    """What IPython's `display` returns: it replaces what is shown."""

    def __init__(self):
        self.shown = []

    def __call__(self, content, *, raw, display_id):
        assert raw
        assert display_id
        self.shown.append(content)
        return self

    def update(self, content, *, raw):
        assert raw
        self.shown.append(content)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_pipe_gets_a_line_every_few_seconds():
    lines, clock = [], Clock()
    shown = PipeProgress(lines.append, clock)
    shown.expect(6)
    shown.start("size")
    clock.seconds += LINE_PERIOD - 0.5
    shown.start("memory")
    assert lines == []  # work that is done sooner writes none
    clock.seconds += 0.5
    shown.keep("11.7 M parameters")
    clock.seconds += 1
    shown.update("recording", 0.5)
    clock.seconds += LINE_PERIOD - 1
    shown.update("recording", 0.75)
    assert lines == [
        "torchgauge: stage 2 of 6 · memory · 5 s · 11.7 M parameters\n",
        "torchgauge: stage 2 of 6 · memory 75% · 10 s · recording · 11.7 M parameters\n",
    ]


def test_what_a_line_names_commands_no_runner_of_workflows():
    lines, clock = [], Clock()
    shown = PipeProgress(lines.append, clock)
    clock.seconds += LINE_PERIOD
    shown.start("reading ##vso[task.complete]")
    assert lines == ["torchgauge: reading #\\#vso[task.complete] · 5 s\n"]


def test_without_a_number_of_stages_none_is_shown():
    lines, clock = [], Clock()
    shown = PipeProgress(lines.append, clock)
    clock.seconds += 61
    shown.start("reading")
    assert lines == ["torchgauge: reading · 61 s\n"]


def test_a_name_in_a_pipe_commands_no_runner():
    lines, clock = [], Clock()
    shown = PipeProgress(lines.append, clock)
    clock.seconds += LINE_PERIOD
    shown.update("##vso[task.complete].json")
    (line,) = lines
    assert "##vso[" not in line
    assert "vso[task.complete].json" in line


def test_more_stages_than_expected_are_counted_on():
    lines, clock = [], Clock()
    shown = PipeProgress(lines.append, clock)
    shown.expect(1)
    shown.start("size")
    clock.seconds += LINE_PERIOD
    shown.start("latency")
    assert lines == ["torchgauge: stage 2 of 2 · latency · 5 s\n"]


def test_a_notebook_replaces_its_line_and_ends_with_none():
    handle = Handle()
    shown = NotebookProgress(handle)
    shown.start("latency")
    shown.update("31 calls")
    shown.close()
    *lines, end = handle.shown
    assert lines == [{"text/plain": "latency · 0 s"}, {"text/plain": "latency · 0 s · 31 calls"}]
    assert end == {"text/html": "", "text/plain": ""}  # a text without any would take a line


def test_a_notebook_gets_no_line_of_work_without_a_stage():
    handle = Handle()
    NotebookProgress(handle).close()
    assert handle.shown == []


def test_a_terminal_has_one_line_that_is_gone_at_the_end(monkeypatch):
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    with progress.showing(None) as shown:
        shown.expect(3)
        shown.start("latency")
        shown.update("median 5 ms", 0.25)
    text = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", err.getvalue())
    assert "stage 1 of 3 · latency 25% · 0 s · median 5 ms" in text
    assert text.splitlines()[-1].strip() == "" or text.endswith("\r")


@pytest.mark.parametrize(
    ("choice", "command", "expected"),
    [
        (None, None, Silent),  # a script's log is its own
        (True, None, PipeProgress),
        (None, "usual", PipeProgress),
        (False, "usual", Silent),
        (None, "quiet", Silent),
        (True, "quiet", Silent),
    ],
)
def test_who_sees_what_in_a_pipe(choice, command, expected, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    if command is None:
        assert type(progress.progress(choice)) is expected
    else:
        with progress.in_command(quiet=command == "quiet"):
            assert type(progress.progress(choice)) is expected


def test_a_full_standard_error_ends_nothing(monkeypatch):
    tried = []

    class Full(io.StringIO):
        def write(self, text):
            tried.append(text)
            raise OSError("No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    monkeypatch.setattr(progress, "LINE_PERIOD", 0.0)
    progress.progress(choice=True).start("latency")
    assert len(tried) == 1
    assert "latency" in tried[0]


class Stages:
    """Notes what a profile tells of its progress."""

    def __init__(self):
        self.expected, self.started, self.figures = [], [], []

    def expect(self, stages):
        self.expected.append((stages, len(self.started)))

    def start(self, stage):
        self.started.append(stage)

    def update(self, detail, fraction=None):
        pass

    def keep(self, figure):
        self.figures.append(figure)

    def close(self):
        pass


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"detail": "summary"}, marks=pytest.mark.slow),
        pytest.param({"lines": True}, marks=pytest.mark.slow),
        {"effort": "quick"},
        {"effort": "quick", "roofs": None},
        {"device": "meta"},
    ],
    ids=str,
)
def test_a_profile_has_as_many_stages_as_it_said(options, monkeypatch):
    shown = Stages()
    monkeypatch.setattr("torchgauge.progress.progress", lambda _: shown)
    tg.profile(nn.Linear(3, 4), torch.ones(2, 3), **{"roofs": False, "budget": 0.5} | options)
    ((stages, before),) = shown.expected
    assert len(shown.started) - before == stages
    assert shown.figures[0] == "16 parameters"


@pytest.mark.thorough
def test_a_command_in_a_pipe_says_what_it_does_unless_quiet(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_PERIOD", 0.0)
    target = "torch.nn:Identity"
    command = ["profile", target, "--input", "2x3", "--detail", "summary", "--no-roofs", "--quick"]
    assert main([*command, "--quiet"]) == 0
    assert "stage" not in capsys.readouterr().err
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "torchgauge: stage 1 of 5 · size · " in said
    assert "· latency" in said
