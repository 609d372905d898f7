"""Names that Python allows and nobody expects, from a model through every way out."""

import csv
import io
import json
import unicodedata

import msgspec
import pytest
from tests.support import records, trends

import torchgauge as tg
from torchgauge.cli import formats
from torchgauge.records.record import MeasurementWarning
from torchgauge.visible import visible, visible_lines

NAMES = ["half\ud800", "nul\0", "two\r\nlines", "left\u202eright\u2066", "\x1b[31mred", "x" * 9999]
KEPT = ["half\\ud800", *NAMES[1:]]
SHOWN = ["half\\ud800", "nul\\x00", "two\\r\\nlines", "left\\u202eright\\u2066", "\\x1b[31mred"]


@pytest.fixture(scope="module")
def measured():
    import torch

    model = torch.nn.Sequential()
    for name in NAMES:
        model.add_module(name, torch.nn.Linear(4, 4))
    return tg.profile(model, torch.ones(2, 4), iterations=5, warmup=1)


def layers(record):
    return [node.path for node in record.tree.root.layers]


@pytest.mark.thorough
def test_half_a_character_is_written_as_its_escape_and_all_else_is_kept(measured):
    assert measured.complete
    assert layers(measured) == KEPT
    assert measured.tree.find("half\\ud800").flops == 2 * 2 * 4 * 4  # its work is joined to it


@pytest.mark.parametrize(
    "form", [form for form in formats.FORMATS if form not in {"junit", "requests"}]
)
def test_every_format_can_be_written(measured, form, tmp_path):
    text = formats.text(measured, form)
    (tmp_path / "out").write_bytes(text.encode())
    assert (tmp_path / "out").read_bytes().decode() == text


def test_what_was_saved_is_read_back(measured, tmp_path):
    assert tg.load(measured.save(tmp_path / "run.json")) == measured
    assert measured.to_html(tmp_path / "run.html") == (tmp_path / "run.html").read_bytes().decode()
    assert measured._repr_html_().encode()


def test_formats_that_quote_hold_the_names(measured):
    table = csv.DictReader(io.StringIO(formats.text(measured, "layers"), newline=""))
    assert [row["path"] for row in table][1:] == KEPT
    frames = json.loads(formats.text(measured, "speedscope"))["shared"]["frames"]
    assert {f"{name} (Linear)" for name in KEPT} <= {frame["name"] for frame in frames}
    page = formats.text(measured, "html")
    data = page.split('id="data">')[1].split("</script>")[0]
    seen = {*SHOWN, "two\\r\nlines"} - {"two\\r\\nlines"}
    assert seen <= set(json.loads(data)["parts"]["tree"]["texts"])


def test_a_stack_stays_one_line(measured):
    stacks = formats.text(measured, "folded").splitlines()
    assert all(line.rpartition(" ")[2].isdecimal() for line in stacks)
    assert any(";two  lines (Linear)" in line for line in stacks)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_nothing_in_a_name_commands_a_terminal(measured, form):
    text = formats.text(measured, form)
    commands = {char for char in text if unicodedata.category(char) in ("Cc", "Cf")}
    assert commands == {"\n"}


def test_each_layer_is_one_line_of_the_console(measured):
    lines = [line.strip() for line in formats.text(measured, "text").splitlines()]
    assert max(map(len, lines)) <= 80
    tree = lines.index("", lines.index("Alive at the peak"))
    leaves = next(place for place, line in enumerate(lines) if line.startswith("leaf layer"))
    lines = lines[tree:leaves]
    for name in [*SHOWN, "xxxx"]:
        assert sum(line.startswith(name) for line in lines) == 1, name


def test_a_text_is_mended_wherever_a_record_holds_it():
    warning = MeasurementWarning(id="x", message="\udcff of a path", cause="é\U0001f600")
    assert (warning.message, warning.cause) == ("\\udcff of a path", "é\U0001f600")
    memory = msgspec.structs.replace(records.memory(), method="\ud800", warnings=(warning,))
    assert memory.method == "\\ud800"
    assert memory.warnings == (warning,)
    software = records.environment().software
    found = msgspec.structs.replace(software, libraries={"a\ud800": "\ud800"})
    assert found.libraries == {"a\\ud800": "\\ud800"}


def test_lines_of_a_text_are_kept_where_they_may_be():
    assert visible("a\nb\x07é漢") == "a\\nb\\x07é漢"
    assert visible_lines("a\nb\x07") == "a\nb\\x07"


EVIL = "a%\n::error::x|<script>\x1b[31m\u202e"


def foreign():
    """Return a record in which whatever a stored file may hold is meant for a terminal."""
    plain = records.profile()
    software = msgspec.structs.replace(plain.environment.software, libraries={EVIL: EVIL})
    machine = msgspec.structs.replace(plain.environment.machine, cpu=EVIL)
    around = msgspec.structs.replace(plain.environment, software=software, machine=machine)
    target = msgspec.structs.replace(plain.target, name=EVIL, spec=EVIL)
    return msgspec.structs.replace(plain, environment=around, target=target)


def shown():
    """Yield what a terminal gets of records of others, and of a history's names."""
    other = foreign()
    yield str(tg.compare(other, records.profile()))
    yield str(tg.compare(other, other))
    yield str(tg.gate(other, records.profile()))
    yield str(tg.gate(other, records.profile()).to_junit())
    yield str(tg.detect_regressions(other, records.profile()))
    yield str(trends.trend(EVIL, EVIL))


def test_no_record_of_others_commands_a_terminal_or_a_runner():
    for text in shown():
        commands = {char for char in text if unicodedata.category(char) in ("Cc", "Cf")}
        assert commands == {"\n"}, text
        # A line of its own is a command to a workflow's runner.
        assert not [line for line in text.splitlines() if line.startswith("::")], text
