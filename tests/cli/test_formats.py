"""What the options and examples of a verb's help promise is what the verb takes."""

import argparse
import re
import shlex

import pytest

from torchgauge.cli import capacity, formats, generate, load, sweep
from torchgauge.cli.main import build, main
from torchgauge.cli.options.target import settle
from torchgauge.records.metric import METRICS
from torchgauge.report import kinds


def parser_of(verb):
    (actions,) = [a for a in build([verb])._actions if a.nargs == argparse.PARSER]
    return actions.choices[verb]


def help_of(verb, option):
    return parser_of(verb)._option_string_actions[option].help


@pytest.mark.parametrize(
    ("verb", "kind"),
    [(capacity, "CapacityPlan"), (generate, "Generation"), (load, "Serving"), (sweep, "Sweep")],
)
def test_a_verb_takes_and_lists_every_format_of_its_record(verb, kind):
    fitting = {
        form
        for form, written in formats.FORMATS.items()
        if "table" not in written.options and kinds.fits(kind, written.renderer)
    }
    tables = {form for form in verb.FORMS if "table" in formats.FORMATS[form].options}
    assert set(verb.FORMS) - tables - {"junit"} == fitting  # junit is of the verdict
    listed = help_of(verb.__name__.rpartition(".")[2], "--format")
    assert f": {', '.join(verb.FORMS)} (default: json)" in listed


def test_the_examples_of_load_have_a_rate():
    text = load.DESCRIPTION.replace("\\\n", " ")
    commands = [shlex.split(line)[1:] for line in text.splitlines() if "  torchgauge" in line]
    assert len(commands) == 4
    assert all(build(["load"]).parse_args(command).rate for command in commands)


def test_the_limits_that_generate_names_are_of_generations():
    examples = re.match("limits such as (.+?);", help_of("generate", "--threshold"))[1].split()
    names = [example.partition(":")[0] for example in examples]
    assert [n for n in names if not METRICS[n].of_calls] == ["memory", "params"]


@pytest.mark.parametrize("verb", ["count", "sweep"])
def test_the_target_may_be_an_option_and_is_exactly_one(verb, capsys):
    options = build([verb]).parse_args([verb, "--model-path", "a.py:make"])
    assert (settle(options), options.target) == ((), "a.py:make")
    assert main([verb, "a.py:make", "--model-path", "b.py:make"]) == 2
    assert "There are two targets" in capsys.readouterr().err
    assert main([verb]) == 2
    assert "[target-missing]" in capsys.readouterr().err
