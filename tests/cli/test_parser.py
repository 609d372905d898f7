"""Arguments that no verb takes: one line of usage, what is wrong, what was meant."""

import pytest

from torchgauge.cli.main import VERBS, build, main
from torchgauge.cli.parser import UsageError, nearest


def refused(capsys, *arguments):
    assert main(list(arguments)) == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["PROFILE", "m.py:f"], "torchgauge profile m.py:f"),
        (["prof", "m.py:f"], "torchgauge profile m.py:f"),
        (["hf:bert?num_hidden_layers=2"], "torchgauge profile 'hf:bert?num_hidden_layers=2'"),
        (["count", "m.py:f", "--Backward"], "torchgauge count m.py:f --backward"),
        (["profile", "m.py:f", "--iters", "3"], "torchgauge profile m.py:f --iterations 3"),
        (["profile", "m.py:f", "--batch-size=3"], "torchgauge profile m.py:f --batch=3"),
        (["profile", "m.py:f", "--gpu"], "torchgauge profile m.py:f --device=cuda"),
        (["profle", "--help"], "torchgauge profile --help"),
        (["trace", "a b.json", "--to=Chrome"], "torchgauge trace 'a b.json' --to=chrome"),
        (["history", "ad", "run.json"], "torchgauge history add run.json"),
    ],
)
def test_the_whole_command_that_was_meant_is_told(arguments, meant, capsys):
    lines = refused(capsys, *arguments)
    assert f"Remedy: Did you mean: {meant}" in lines


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["profle", "m.py:f", "--precison", "bf16"], "profile"),
        (["profile", "m.py:f", "--gpu", "0"], "--device=cuda"),
    ],
)
def test_a_command_with_more_mistakes_is_not_suggested_as_a_whole(arguments, word, capsys):
    assert f"Remedy: Did you mean {word}?" in refused(capsys, *arguments)


@pytest.mark.parametrize("arguments", [["zzz"], ["profile", "x", "--qqq"], ["doctor", "x"]])
def test_where_nothing_is_near_nothing_is_guessed(arguments, capsys):
    lines = refused(capsys, *arguments)
    assert len(lines) == 3
    assert not any("Did you mean" in line for line in lines)


def test_a_usage_error_is_json_where_json_is_asked_for(capsys):
    assert main(["profile", "m.py:f", "--json", "--precison", "bf16"]) == 2
    assert '"id": "option-unknown"' in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_usage_in_one_line(verb):
    with pytest.raises(UsageError) as caught:
        build({verb}).parse_args([verb, "--no-such-option"])
    assert caught.value.usage.startswith(f"usage: torchgauge {verb} ")
    assert caught.value.usage.count("[options]") == 1
    assert "\n" not in caught.value.usage
    assert len(caught.value.usage) < 80


@pytest.mark.parametrize(
    ("verb", "missing"),
    [("trace", "FILE|DIR"), ("snapshot", "FILE"), ("report", "RUN"), ("sweep", "TARGET"),
     ("count", "TARGET"), ("compare", "A, B"), ("history", "ACTION"), ("profile", "TARGET"),
     ("advise", "TARGET"), ("run", "script.py")],
)  # fmt: skip
def test_a_verb_without_what_it_needs_says_what_that_is(verb, missing, capsys):
    usage, error, more = refused(capsys, verb)
    assert usage.startswith(f"usage: torchgauge {verb}")
    assert error.startswith(f"torchgauge: error: {missing} is missing")
    assert more == f"Remedy: For more: torchgauge {verb} --help"


@pytest.mark.parametrize(
    ("text", "names", "near"),
    [
        ("KERNELS", ("layers", "kernels"), "kernels"),
        ("--out", ("--output-dir", "--html"), "--output-dir"),
        ("x", ("xml", "x"), "x"),
        ("zzz", ("layers",), ""),
    ],
)
def test_the_nearest_name_is_of_any_case(text, names, near):
    assert nearest(text, names) == near
