"""Advice in every form: what held comes with its code, and everything else with its reason."""

import io
import json
import re

import msgspec
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from tests.support import advices
from tests.support.exported_records import ODD
from tests.support.markdown_reader import tables

from torchgauge.cli import formats
from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.records import codec
from torchgauge.report.console.console import view
from torchgauge.report.page import page_advice

ADVICE = advices.advice()


def lines(advice, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view(advice, width=width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_and_names_every_candidate_once_under_its_outcome(width):
    shown = lines(ADVICE, width)
    assert max(map(len, shown)) <= width
    for sign, trial in zip("✓✓?✗!–", ADVICE.trials, strict=True):
        assert sum(line.lstrip().startswith(f"{sign} {trial.id}  ") for line in shown) == 1


def test_what_held_has_speed_interval_memory_and_code():
    shown = lines(ADVICE)
    (line,) = (line for line in shown if line.startswith("✓ compile"))
    assert line.split()[2:] == ["1.30×", "[1.27,", "1.33]", "−25", "%", "2.0e-6"]
    assert "    model = torch.compile(model)" in shown
    text = " ".join(" ".join(shown).split())
    assert "12 s once, earned back in 5,200 calls" in text
    assert "metric 0.9120 → 0.9110" in text
    assert "argmax agrees in 99.5 %" in text
    assert "1.38×" in text  # what to use, measured as a whole


def test_one_alone_is_not_shown_twice():
    alone = advices.advice(
        best=msgspec.structs.replace(ADVICE.best, candidates=("compile",)), combinations=()
    )
    assert "What to use" not in "\n".join(lines(alone))
    assert alone.to_markdown().count("model = torch.compile(model)") == 1


def test_estimates_are_said_to_be_such():
    text = " ".join(" ".join(lines(ADVICE)).split())
    assert "On several devices estimated" in text
    assert "memory of each of 2: 2.00 GB" in text


def test_nothing_that_held_is_said_as_well():
    text = "\n".join(lines(advices.NOTHING))
    assert "0 of 1 candidates confirmed" in text
    assert "What to use" not in text
    assert "Interrupted" in text


def test_a_terminal_is_not_commanded_by_names():
    assert "\u202e" not in "\n".join(lines(ADVICE))
    assert "\u202e" not in ADVICE.to_markdown()


def test_markdown_has_a_row_for_each_and_code_in_fences():
    found = ADVICE.to_markdown()
    (held,) = tables(found)
    assert [row[0] for row in held[1:]] == ["🟢 ✓ compile", "🟢 ✓ malloc-keep"]
    listed = [line for line in found.splitlines() if re.match("- [?✗!–] ", line)]
    assert [line.split()[2] for line in listed] == [
        "channels-last:", "int8-dynamic:", "bf16-cast:", "fsdp:"
    ]  # fmt: skip
    fences = [one for one in MarkdownIt().parse(found) if one.type == "fence"]
    assert ("python", "model = torch.compile(model)\n") in [(f.info, f.content) for f in fences]
    assert ("sh", f"{advices.SHELL.code}\n") in [(f.info, f.content) for f in fences]


def test_the_page_s_data_is_json_with_every_trial():
    data = json.loads(json.dumps(page_advice.advice(ADVICE)))
    assert [row["id"] for row in data["rows"]] == [
        "compile", "malloc-keep", "channels-last", "int8-dynamic", "bf16-cast", "fsdp"
    ]  # fmt: skip
    first, shell, _, rejected, _, untried = data["rows"]
    assert (first["speed_up"], first["stage"], first["one_off"]) == (1.3, "confirmed", 12 * 10**9)
    assert first["layers"] == [{"path": ODD, "change": -0.4, "saved": 2_000_000}]
    assert shell["language"] == "shell"
    assert rejected["speed_up"] is None
    assert untried["assumed"][0][1] == "2.00 GB"
    assert data["best"]["candidates"] == ["compile", "malloc-keep"]
    overview = json.loads(json.dumps(page_advice.overview(ADVICE)))
    assert [one["value"] for one in overview["figures"]] == ["1.38×", "1.30×", "1.10×"]


def test_it_is_saved_and_shown_again_the_same(tmp_path, capsys):
    path = ADVICE.save(tmp_path / "advice.json")
    assert codec.load(path) == ADVICE
    assert main(["report", str(path)]) == 0
    assert capsys.readouterr().out.strip() == str(ADVICE).strip()


@pytest.mark.parametrize("form", ["csv", "junit", "speedscope", "openmetrics"])
def test_forms_that_do_not_fit_say_so(form):
    with pytest.raises(InputError) as caught:
        formats.text(ADVICE, form)
    assert caught.value.id == "format-unfit"
