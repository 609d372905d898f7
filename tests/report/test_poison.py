"""Every text of every record is another's, in every way out: nothing commands, all can be read.

A record is rendered twice, once with harmless words for its texts and once with what a stranger
would write around them. Both must have the same structure for those that read the format.
"""

import csv
import html.parser
import io
import json
import re
import sys
from xml.etree import ElementTree

import markdown_it
import msgspec
import pytest
from tests.support import advices, evidence, pages, poison, trends, verdicts
from tests.support import exported_records as records
from tests.support import records as plain

import torchgauge as tg
from torchgauge import progress
from torchgauge.analyze.memory.training_memory import MASTERS, OPTIMIZER
from torchgauge.cli import formats
from torchgauge.records import codec
from torchgauge.records.comparison import Regressions
from torchgauge.records.doctor import Check, Diagnosis
from torchgauge.records.finding import Finding
from torchgauge.records.latency.training import TrainingPhase, TrainingTime
from torchgauge.records.memory.training_memory import MemoryPart, OptimizerMemory, TrainingMemory
from torchgauge.records.timeline import tables
from torchgauge.report.csv.csv import FORMULA
from torchgauge.report.export import github

TERMINAL = (
    "{0}\x1b]0;x\x07\x1b[2J\x9b2J\x08\r\n::error::y\n  ##vso[task.complete]\x00"
    "\u202e\u2066[forged]\n[forged]{0}"
)
MARKUP = (
    "{0}</script><script>window.broken=1</script><svg onload=window.broken=1>"
    "[link](javascript:window.broken=1)|a|`b``c```\n# head\n```\n~~~\n- item\n\\|"
    "<img src=x onerror=window.broken=1>&lt;\"'>--><!--\\{0}"
)
POISONS = {
    "terminal": TERMINAL,
    "markup": MARKUP,
    "equals": "=1+1|{0}",
    "backslash": "\\|`{0}<svg onload=window.broken=1>`\\",
    "at": "@SUM(1)\t{0};",
    "tab": "\t=1+1 {0}",
}
# The first two hold most of it; the others take as long again.
HOWS = [
    pytest.param(how, marks=[] if how in ("terminal", "markup") else pytest.mark.attack)
    for how in POISONS
]
ORDER = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
RUNNER = re.compile(r"^\s*::|##\w*\[|^\[forged", re.MULTILINE)
WORD = re.compile(r"w\d{3,}w")
# Of these the record is data for a program, which quotes all of it.
DATA = ("json", "speedscope", "benchmark", "benchmark-bigger")
TABLES = ("csv", "layers", "operators", "kernels", "lines", "tensors")


def diagnosis():
    finding = Finding(id="x", severity="serious", title="A", evidence="B", remedy="C")
    check = Check(id="x", title="A check", status="found", observed="seen", findings=(finding,))
    return Diagnosis(environment=plain.environment(), fingerprint="f", checks=(check,))


def count():
    part = MemoryPart(bytes=10, how="counted", by_dtype={"float32": 10})
    one = OptimizerMemory(
        states=part,
        lower_bound=40,
        total=50,
        moment="backward",
        at_peak={"parameters": 10, "gradients": 40},
    )
    sides = {MASTERS: one, OPTIMIZER: one}
    parts = ("parameters", "buffers", "inputs", "gradients", "activations")
    training = TrainingMemory(**dict.fromkeys(parts, part), optimizers=sides, optimizer=OPTIMIZER)
    return msgspec.structs.replace(records.count(), training=training)


def trained():
    phases = tuple(
        TrainingPhase(name=name, seconds=0.002, share=0.25)
        for name in ("forward", "backward", "optimizer", "rest")
    )
    time = TrainingTime(step=0.008, phases=phases, clock="host", optimizer="A", autocast="B")
    return records.profile(training=time)


def samples():
    """Return a record of every kind, with as much in it as goes in."""
    every = records.every() | {
        "count with training": count(),
        "profile of training": trained(),
        "profile on a page": pages.with_tree(),
        "diagnosis": diagnosis(),
        "trend": trends.trend(),
        "advice": advices.advice(),
        "trace": evidence.trace(),
        "trace diff": evidence.diff(),
        "snapshot": evidence.snapshot(),
        "growth": evidence.growth(),
        "verdict": verdicts.odd(),
        "verdict that failed": verdicts.failed(),
        "comparison": verdicts.odd().comparison,
        "comparison of profiles": tg.compare(pages.with_tree(), plain.profile()),
    }
    return {name: poison.filled(record) for name, record in every.items()}


SAMPLES = samples()


def with_texts(record, template):
    token = poison.tokens()

    def write(place, text):
        word = token(place, text)
        return template.format(word) if WORD.fullmatch(word) else word

    return poison.poisoned(record, write)


def written(record, form):
    """Return the record in a format, None where it has none of this kind."""
    try:
        return formats.text(record, form)
    except tg.InputError as error:
        if error.id not in ("format-unfit", "no-tree", "figure-absent"):
            raise
        return None


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


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("form", formats.FORMATS)
def test_a_record_of_others_is_shown_and_commands_nothing(name, how, form):
    harmless = written(with_texts(SAMPLES[name], "{0}"), form)
    text = written(with_texts(SAMPLES[name], POISONS[how]), form)
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
    assert tags <= {"<br>", "<sub>", "</sub>", "<code>", "</code>"}
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
    | {"text": lines, "markdown": markdowns, "html": htmls, "openmetrics": metrics,
       "junit": cases, "folded": stacks}
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", SAMPLES)
def test_a_terminal_gets_no_command_but_colours(name, monkeypatch, tmp_path):
    from torchgauge.cli.main import main

    path = tmp_path / "run.json"
    path.write_bytes(codec.encode(with_texts(SAMPLES[name], TERMINAL)))
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

    path = with_texts(SAMPLES["profile"], TERMINAL).save(tmp_path / "run.json")
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    assert main(["report", str(path), "--format", form]) == 0
    assert not ORDER.search(out.getvalue())
    assert WORD.search(out.getvalue())


@pytest.mark.parametrize("how", HOWS)
def test_a_notebook_shows_names_and_no_markup(how):
    record, harmless = (with_texts(SAMPLES["profile"], one) for one in (POISONS[how], "{0}"))
    for text, plainly in (
        (record._repr_html_(), harmless._repr_html_()),
        (tables.layers(record.tree)._repr_html_(), tables.layers(harmless.tree)._repr_html_()),
    ):
        found, expected = Elements(text), Elements(plainly)
        assert found.found == expected.found
        assert not ORDER.search(text)
        assert set(WORD.findall(plainly)) <= set(WORD.findall("".join(found.data)))


@pytest.mark.parametrize("how", HOWS)
def test_a_workflow_gets_one_annotation_for_each_ruling(how):
    verdict = with_texts(SAMPLES["verdict that failed"], POISONS[how])
    found = github.commands(verdict, file=POISONS[how].format("w1w")).splitlines()
    assert len(found) == sum(one.outcome != "pass" for one in verdict.rulings)
    for line in found:
        assert re.fullmatch(r"::(error|warning) file=[^:,]*,title=[^:,]*::.*", line)
        assert not ORDER.search(line)


@pytest.mark.parametrize("how", HOWS)
def test_regressions_are_a_line_each(how):
    changed = with_texts(SAMPLES["comparison of profiles"], POISONS[how])
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
