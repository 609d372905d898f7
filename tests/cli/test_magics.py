"""`%load_ext torchgauge` in a real IPython: what the magics measure, show and raise."""

import argparse
import re

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.magics import NO_RECORD, _with_record
from torchgauge.cli.main import VERBS, build
from torchgauge.records.profile import Profile
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.size import Count

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")

FACTORY = """
from torch import nn

def make():
    return nn.Linear(3, 4)
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    shell = interactiveshell.InteractiveShell()
    shell.history_manager.enabled = False
    shell.user_ns |= {"model": nn.Linear(3, 4), "x": torch.ones(2, 3)}
    assert shell.run_cell("%load_ext torchgauge").success
    yield shell
    shell.history_manager.end_session()


@pytest.mark.thorough
def test_variables_of_the_notebook_are_measured_in_its_process(shell, capsys):
    done = shell.run_cell("%torchgauge profile model x --quick --detail summary --roofs False")
    assert done.success
    profile = done.result
    assert isinstance(profile, Profile)
    assert profile.size.parameters == 16
    assert profile.tree is None
    assert str(profile) in capsys.readouterr().out  # a terminal shows its summary


def test_a_magic_gives_its_record_to_a_variable(shell):
    assert shell.run_cell("cost = %torchgauge count model x --backward").success
    assert isinstance(shell.user_ns["cost"], Cost)
    assert shell.user_ns["cost"].backward
    assert shell.user_ns["cost"].macs == 2 * 24  # backward: the weights alone


def test_attributes_and_items_are_variables_too(shell):
    shell.user_ns["models"] = {"a": nn.Sequential(nn.Linear(3, 5))}
    done = shell.run_cell("%torchgauge count \"models['a'][0]\" x")
    assert done.result.macs == 30


@pytest.mark.slow
def test_targets_of_the_command_line_run_in_a_process_of_their_own(shell, tmp_path):
    (tmp_path / "net.py").write_text(FACTORY)
    count = shell.run_cell("%torchgauge count net.py:make --input 2x3").result
    assert isinstance(count, Count)
    assert count.cost.macs == 24
    assert count.target.spec == "net.py:make"


def test_what_is_no_record_is_printed(shell, capsys):
    done = shell.run_cell("%torchgauge --version")
    assert done.success
    assert done.result is None
    assert capsys.readouterr().out.startswith("torchgauge ")


@pytest.mark.slow
def test_an_error_of_the_command_is_raised(shell, capsys):
    done = shell.run_cell("%torchgauge count nowhere.py:make")
    assert isinstance(done.error_in_exec, tg.TorchgaugeError)
    assert done.error_in_exec.id == "file-missing"
    assert "torchgauge: error" not in capsys.readouterr().err  # it is told once


def test_an_unknown_option_names_those_there_are(shell):
    error = shell.run_cell("%torchgauge count model x --backwards").error_in_exec
    assert error.id == "option-unknown"
    assert "--backward" in error.remedy


def test_a_cell_is_recorded_and_keeps_its_result(shell, capsys):
    done = shell.run_cell("%%torchgauge model\nfor _ in range(5):\n    y = model(x)\ny.shape")
    assert done.success
    assert done.result == (2, 4)
    assert shell.user_ns["y"].shape == (2, 4)
    shown = capsys.readouterr().out
    assert "Loop of Linear" in shown
    assert "5 steps, each ended by a call of the model" in shown


def test_a_cell_without_an_expression_has_no_result(shell):
    done = shell.run_cell("%%torchgauge\ny = model(x)")
    assert done.success
    assert done.result is None


def test_magics_within_a_cell_run(shell):
    done = shell.run_cell("%%torchgauge\nfiles = %pwd\nmodel(x).shape")
    assert done.success
    assert isinstance(shell.user_ns["files"], str)


def test_an_error_in_a_cell_is_its_own(shell, capsys):
    done = shell.run_cell("%%torchgauge\nmodel(x)\nvalue = 1 / 0")
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    shown = capsys.readouterr().out
    traceback = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert re.search(r"-+> 2 value = 1 ?/ ?0", traceback)  # the cell's own line, as always
    assert "Loop of" not in shown
    assert shell.run_cell("%%torchgauge\nmodel(x).shape").success  # nothing is left active


def test_a_cell_that_is_no_python_says_so(shell):
    done = shell.run_cell("%%torchgauge\nfor")
    assert isinstance(done.error_in_exec, SyntaxError)


def test_unloading_forgets_both(shell):
    assert shell.run_cell("%unload_ext torchgauge").success
    for kind in ("line", "cell"):
        assert "torchgauge" not in shell.magics_manager.magics[kind]


@pytest.mark.parametrize("verb", VERBS)
def test_the_command_is_one_that_the_parser_takes(verb):
    option = _with_record(verb, ["a"])[1]
    parsers = next(a for a in build({verb})._actions if a.nargs == argparse.PARSER)
    known = parsers.choices[verb]._option_string_actions
    assert option in known if option != "a" else "--json" not in known


@pytest.mark.parametrize("word", sorted(NO_RECORD))
def test_a_command_that_says_what_it_prints_is_left_as_it_is(word):
    assert _with_record("count", ["a", word]) == ["count", "a", word]
