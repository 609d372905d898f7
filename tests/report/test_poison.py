"""Every text of every record is another's, in every way out: nothing commands, all can be read.

A record is rendered twice, once with harmless words for its texts and once with what a stranger
would write around them. Both must have the same structure for those that read the format.
"""

import csv
import functools
import html.parser
import io
import json
import re
import sys
from xml.etree import ElementTree

import markdown_it
import pytest
from tests.support import poison
from tests.support.cases import few_quick
from tests.support.hostile_texts import ORDER, POISONS, TERMINAL, WORD
from tests.support.poisoned_samples import SAMPLES, sample

import torchgauge as tg
from torchgauge import progress
from torchgauge.cli import formats
from torchgauge.records import codec
from torchgauge.records.comparison import Regressions
from torchgauge.records.timeline import tables
from torchgauge.report.csv.csv import FORMULA
from torchgauge.report.export import github
from torchgauge.report.markdown.markdown_blocks import FOLD, UNFOLD

# The first two hold most of it; the others take as long again.
HOWS = [
    pytest.param(how, marks=[] if how in ("terminal", "markup") else pytest.mark.attack)
    for how in POISONS
]
RUNNER = re.compile(r"^\s*::|##\w*\[|^\[forged", re.MULTILINE)
# Of these the record is data for a program, which quotes all of it.
DATA = ("json", "speedscope", "benchmark", "benchmark-bigger")
TABLES = ("csv", "layers", "operators", "kernels", "categories", "lines", "tensors", "requests")


def written(record, form):
    """Return the record in a format, None where it has none of this kind."""
    try:
        return formats.text(record, form)
    except tg.InputError as error:
        if error.id not in ("format-unfit", "no-tree", "figure-absent"):
            raise
        return None


@functools.cache
def harmlessly_written(name, form):
    return written(sample(name), form)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "4000")


def commands(text):
    return [*ORDER.findall(text), *RUNNER.findall(text)]


def test_every_field_that_may_hold_any_text_is_in_a_sample():
    seen = set()

    def write(place, text):
        seen.add(place)
        return text

    for record in SAMPLES.values():
        poison.poisoned(record, write)
    every = set().union(*map(poison.places, codec.KINDS.values()))
    missing = {place for place in every - seen - poison.WORDS if place[1] != "schema"}
    print(f"{len(seen)} of {len(every)} fields")
    assert missing <= {("Fit", "reason")}  # no sample has batches enough for a fit


@pytest.mark.parametrize("name", few_quick(SAMPLES))
@pytest.mark.parametrize("how", HOWS)
def test_a_record_of_others_is_shown_and_commands_nothing(name, how):
    for form in formats.FORMATS:
        try:
            check_format(name, how, form)
        except Exception as error:
            error.add_note(f"The format is {form}.")
            raise


def check_format(name, how, form):
    harmless = harmlessly_written(name, form)
    text = written(sample(name, POISONS[how]), form)
    assert (text is None) == (harmless is None)
    if text is None:
        return
    text.encode()
    lost = set(WORD.findall(harmless)) - set(WORD.findall(text))
    assert not lost or "…" in text  # a name of a hundred characters more is cut
    LOOKS[form](text, harmless)


def lines(text, harmless):
    assert not commands(text)


def rows(text, harmless):
    found, expected = (list(csv.reader(io.StringIO(one, newline=""))) for one in (text, harmless))
    assert list(map(len, found)) == list(map(len, expected))
    for cell in (cell for row in found for cell in row if cell.startswith(FORMULA)):
        float(cell)


def documents(text, harmless):
    found, expected = json.loads(text), json.loads(harmless)

    def shape(one):
        if isinstance(one, dict):
            return [shape(value) for value in one.values()]
        return [shape(value) for value in one] if isinstance(one, list) else type(one)

    assert shape(found) == shape(expected)


def markdowns(text, harmless):
    assert not ORDER.search(text)
    assert not RUNNER.search(text.replace("\n[forged", "\n"))  # code keeps its lines
    reader = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    found, expected = ([*reader.parse(one)] for one in (text, harmless))
    assert [one.type for one in found] == [one.type for one in expected], text
    inner = [inner for one in found for inner in one.children or ()]
    tags = {one.content for one in inner if one.type == "html_inline"}
    assert tags <= {"<br>", "<code>", "</code>"}
    assert {one.content.strip() for one in found if one.type == "html_block"} <= {FOLD, UNFOLD}
    kinds = {one.type for one in inner}
    assert not kinds & {"link_open", "image", "s_open"}


class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.data = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, [name for name, _ in attributes]))

    def handle_data(self, data):
        self.data.append(data)


def page_data(text):
    return text.split('id="data">')[1].split("</script>")[0]


def htmls(text, harmless):
    found, expected = Elements(text), Elements(harmless)
    assert found.found == expected.found
    assert "<" not in page_data(text)
    documents(page_data(text), page_data(harmless))
    for one in texts(json.loads(page_data(text))):
        assert not ORDER.search(one.replace("\t", "")), one
    title = text.split("<title>")[1].split("</title>")[0]
    assert not ORDER.search(title)


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)


def metrics(text, harmless):
    line = re.compile(
        r'(?:# (?:TYPE|UNIT|HELP|EOF).*|\w+\{(?:\w+="(?:[^"\\\n]|\\[n"\\])*",?)*\} \S+)'
    )
    found, expected = text.split("\n"), harmless.split("\n")
    assert [line.fullmatch(one) for one in found if one and not line.fullmatch(one)] == []
    assert len(found) == len(expected)


def cases(text, harmless):
    found, expected = map(ElementTree.fromstring, (text, harmless))
    assert [one.tag for one in found.iter()] == [one.tag for one in expected.iter()]
    assert not ORDER.search(text)


def stacks(text, harmless):
    assert len(text.splitlines()) == len(harmless.splitlines())
    assert all(re.fullmatch(r"[^\n]+ \d+", one) for one in text.splitlines())
    assert not ORDER.search(text)


LOOKS = (
    dict.fromkeys(TABLES, rows)
    | dict.fromkeys(DATA, documents)
    | {"text": lines, "brief": lines, "markdown": markdowns, "html": htmls, "openmetrics": metrics,
       "junit": cases, "folded": stacks}
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", few_quick(SAMPLES))
def test_a_terminal_gets_no_command_but_colours(name, monkeypatch, tmp_path):
    from torchgauge.cli.main import main

    path = tmp_path / "run.json"
    path.write_bytes(codec.encode(sample(name, TERMINAL)))
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    assert main(["report", str(path)]) == 0, err.getvalue()
    shown = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert not ORDER.search(shown + err.getvalue())
    assert WORD.search(shown)
    assert "\n[forged" not in shown


@pytest.mark.parametrize("form", ["csv", "folded", "json", "markdown", "openmetrics"])
def test_a_terminal_gets_no_command_in_data_either(form, monkeypatch, tmp_path):
    from torchgauge.cli.main import main

    path = sample("profile", TERMINAL).save(tmp_path / "run.json")
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    assert main(["report", str(path), "--format", form]) == 0
    assert not ORDER.search(out.getvalue())
    assert WORD.search(out.getvalue())


@pytest.mark.parametrize("how", HOWS)
def test_a_notebook_shows_names_and_no_markup(how):
    record, harmless = (sample("profile", one) for one in (POISONS[how], "{0}"))
    for text, plainly in (
        (record._repr_html_(), harmless._repr_html_()),
        (tables.layers(record.tree)._repr_html_(), tables.layers(harmless.tree)._repr_html_()),
    ):
        found, expected = Elements(text), Elements(plainly)
        assert found.found == expected.found
        assert not ORDER.search(text)
        assert set(WORD.findall(plainly)) <= set(WORD.findall("".join(found.data)))


@pytest.mark.parametrize("name", few_quick(SAMPLES))
@pytest.mark.parametrize("how", HOWS)
def test_a_notebook_has_the_same_elements_whatever_the_names(name, how):
    found, expected = (Elements(sample(name, one)._repr_html_()) for one in (POISONS[how], "{0}"))
    assert found.found == expected.found
    assert not ORDER.search("".join(found.data).replace("\n", ""))


@pytest.mark.parametrize("how", HOWS)
def test_a_workflow_gets_one_annotation_for_each_ruling(how):
    verdict = sample("verdict that failed", POISONS[how])
    found = github.commands(verdict, file=POISONS[how].format("w1w")).splitlines()
    assert len(found) == sum(one.outcome != "pass" for one in verdict.rulings)
    for line in found:
        assert re.fullmatch(r"::(error|warning) file=[^:,]*,title=[^:,]*::.*", line)
        assert not ORDER.search(line)


@pytest.mark.parametrize("how", HOWS)
def test_regressions_are_a_line_each(how):
    changed = sample("comparison of profiles", POISONS[how])
    found = Regressions(
        regressed=changed.changes[:2], undecided=changed.changes[2:4], comparison=changed
    )
    text = str(found)
    assert len(text.splitlines()) == 4
    assert not commands(text)


def test_progress_names_what_is_measured_on_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    shown = progress.progress(choice=True)
    shown.start(TERMINAL.format("w1w"))
    shown.update(TERMINAL.format("w2w"), 0.5)
    shown.close()
    # rich itself hides the cursor and clears the line.
    text = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", err.getvalue())
    assert not ORDER.search(text.replace("\r", ""))
    assert "w1w" in text
