"""`torchgauge report`: any format again from a saved run, and the same options elsewhere."""

import errno
import os
from pathlib import Path

import pytest
from tests.support import exported_records as records
from tests.support import records as plain

import torchgauge as tg
from torchgauge.cli import formats
from torchgauge.cli.main import build, main
from torchgauge.records import codec, rendering
from torchgauge.records.doctor import Diagnosis
from torchgauge.records.exported import WEIGHTS

NAME = "report"
MODEL = "from torch import nn, ones\ndef make(): return nn.Linear(4, 2), ones(1, 4)\n"
LOOP = """
import torch
net = torch.nn.Linear(4, 2)
for _ in range(12):
    net(torch.ones(1, 4))
"""


@pytest.fixture
def saved(tmp_path):
    return records.profile(gpu=True).save(tmp_path / "run.json")


@pytest.fixture
def page(monkeypatch):
    """Stands for the renderer of the page."""
    monkeypatch.setitem(rendering.RENDERERS, "html", "torchgauge.report.export.json")


@pytest.mark.parametrize("kind", records.every())
def test_without_options_it_is_the_summary(kind, tmp_path, capsys):
    record = records.every()[kind]
    path = record.save(tmp_path / "run.json")
    assert main([NAME, str(path)]) == 0
    assert capsys.readouterr().out == f"{record}\n"


def test_a_diagnosis_is_shown_and_has_no_other_format(tmp_path, capsys):
    record = Diagnosis(environment=plain.environment(), fingerprint="f", checks=())
    path = codec.save(record, tmp_path / "run.json")
    assert main([NAME, str(path)]) == 0
    assert capsys.readouterr().out == f"{record}\n"
    assert main([NAME, str(path), "--format", "json"]) == 0
    assert capsys.readouterr().out == path.read_text()
    assert main([NAME, str(path), "--format", "csv"]) == 2
    assert "[format-unfit]" in capsys.readouterr().err


def test_the_summary_shows_as_much_of_the_tree_as_asked(saved, capsys):
    assert main([NAME, str(saved), "--depth", "0", "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "body" not in text
    assert "… 1 others" in text


@pytest.mark.parametrize(
    "form", [form for form in formats.FORMATS if form not in {"html", "junit", "requests"}]
)
def test_one_format_is_printed(form, saved, capsys):
    assert main([NAME, str(saved), "--format", form]) == 0
    shown = capsys.readouterr()
    assert shown.out == formats.text(tg.load(saved), form)
    assert shown.err == ""


def test_several_are_files_named_after_the_run(saved, tmp_path, capsys):
    out = tmp_path / "out"
    asked = "csv, markdown,kernels,speedscope,openmetrics"
    assert main([NAME, str(saved), "--format", asked, "--output-dir", str(out)]) == 0
    names = ["run.csv", "run.kernels.csv", "run.md", "run.prom", "run.speedscope.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(f"Wrote {out / name}\n" in shown.err for name in names)
    assert (out / "run.md").read_text() == records.profile(gpu=True).to_markdown()


def test_the_page_is_a_file_of_its_own(saved, tmp_path, capsys, page):
    path = tmp_path / "page.html"
    assert main([NAME, str(saved), "--html", str(path), "--format", "csv"]) == 0
    assert path.read_bytes() == saved.read_bytes()  # by the stand-in
    assert capsys.readouterr().out == records.profile(gpu=True).to_csv()


def test_weights_of_stacks_can_be_chosen(saved, capsys):
    assert main([NAME, str(saved), "--format", "folded", "--weight", "flops"]) == 0
    assert capsys.readouterr().out == records.profile(gpu=True).to_folded(weight="flops")
    assert f"--weight {{{','.join(WEIGHTS)}}}" in " ".join(help_of(NAME).split())


def help_of(verb):
    (verbs,) = [action for action in build()._actions if action.metavar == "VERB"]
    return verbs.choices[verb].format_help()


def test_a_folder_holds_the_ranks_of_a_job(tmp_path, capsys):
    for number, loop in enumerate([records.loop(), records.loop()]):
        rank = type(loop.rank)(number=number, world=2, job="a")
        changed = type(loop)(**{**{f: getattr(loop, f) for f in loop.__struct_fields__},
                                "rank": rank})  # fmt: skip
        changed.save(tmp_path / "loop.json")
    assert main([NAME, str(tmp_path), "--format", "openmetrics"]) == 0
    assert 'torchgauge_rank_work_seconds{how="measured",rank="1"}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (["none.json"], "file-missing"),
        (["RUN", "--format", "csv,markdown"], "option-conflict"),
        (["RUN", "--weight", "flops"], "option-conflict"),
        (["RUN", "--format", "html"], "format-absent"),
        (["RUN", "--html", "x.html"], "format-absent"),
        (["BARE", "--format", "folded"], "no-tree"),
        (["RUN", "--format", "csv", "--output-dir", "RUN/out"], "output-unwritable"),
        (["RANKS", "--format", "speedscope"], "no-tree"),
    ],
)
def test_what_cannot_be_is_said_with_a_stable_id(arguments, id, saved, tmp_path, capsys,
                                                 monkeypatch):  # fmt: skip
    monkeypatch.delitem(rendering.RENDERERS, "html", raising=False)
    bare = records.profile(tree=None).save(tmp_path / "bare.json")
    ranks = records.ranks().save(tmp_path / "ranks.json")
    words = {"RUN": str(saved), "BARE": str(bare), "RANKS": str(ranks)}
    for word, path in words.items():
        arguments = [argument.replace(word, path) for argument in arguments]
    before = sorted(tmp_path.iterdir())
    assert main([NAME, *arguments]) == 2
    shown = capsys.readouterr()
    assert f"[{id}]" in shown.err
    assert "Remedy: " in shown.err
    assert shown.out == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["xml", "trace"])
def test_formats_that_are_none_are_refused(name, saved, capsys):
    assert main([NAME, str(saved), "--format", name]) == 2
    said = capsys.readouterr().err
    assert ("--trace FILE" if name == "trace" else "choose from json, text, csv") in said


def test_a_full_disk_leaves_what_was_there(saved, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert main([NAME, str(saved), "--format", "csv,markdown", "--output-dir", str(out)]) == 0
    old = (out / "run.csv").read_bytes()
    capsys.readouterr()
    replace = Path.replace

    def full(self, to):
        if Path(to).suffix == ".csv":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", full)
    records.profile(tree=None).save(saved)
    assert main([NAME, str(saved), "--format", "csv,markdown", "--output-dir", str(out)]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "[output-unwritable]" in said
    assert (out / "run.csv").read_bytes() == old
    assert f"Wrote {out / 'run.md'}" in said  # one that fails does not keep others from it
    assert "Where the time" not in (out / "run.md").read_text()
    assert not list(out.glob(".*"))


@pytest.mark.slow
@pytest.mark.usefixtures("page")
def test_the_verbs_that_measure_write_the_same_files(tmp_path, capsys):
    (tmp_path / "mymodel.py").write_text(MODEL)
    (tmp_path / "myloop.py").write_text(LOOP)
    out = tmp_path / "out"
    asked = ["--output-dir", str(out), "--format", "json,markdown"]
    model = f"{tmp_path}/mymodel.py:make"
    quick = ["--iterations", "3", "--warmup", "1"]
    assert main(["profile", model, *quick, *asked, "--html", str(out / "p.html")]) == 0
    assert main(["count", model, *asked]) == 0
    assert main(["run", *asked, "--html", str(out / "l.html"), f"{tmp_path}/myloop.py"]) == 0
    for kind in ("profile", "count", "loop"):
        record = tg.load(out / f"{kind}.json")
        assert (out / f"{kind}.md").read_text() == record.to_markdown()
    assert (out / "p.html").read_bytes() == (out / "profile.json").read_bytes()  # by the stand-in
    assert (out / "l.html").read_bytes() == (out / "loop.json").read_bytes()
    assert capsys.readouterr().err.count("Wrote ") == 8


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("record", [records.count(), records.ranks()])
def test_only_profiles_and_loops_have_a_page(record, tmp_path, capsys):
    path = record.save(tmp_path / "run.json")
    assert main([NAME, str(path), "--html", str(tmp_path / "x.html")]) == 2
    assert "[format-unfit]" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


@pytest.mark.slow
def test_a_format_that_fails_after_measuring_costs_no_other(tmp_path, capsys):
    (tmp_path / "mymodel.py").write_text(MODEL)
    out = tmp_path / "out"
    arguments = ["--iterations", "3", "--warmup", "1", "--detail", "summary"]
    asked = ["--output-dir", str(out), "--format", "folded,csv,json"]
    assert main(["profile", f"{tmp_path}/mymodel.py:make", *arguments, *asked]) == 2
    shown = capsys.readouterr()
    assert "[no-tree]" in shown.err
    assert "Latency" in shown.out
    assert sorted(path.name for path in out.iterdir()) == ["profile.csv", "profile.json"]


def test_where_a_page_cannot_be_made_nothing_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(rendering.RENDERERS, "html", raising=False)
    monkeypatch.setattr("torchgauge.measure.plan.profile", lambda *_: pytest.fail("it measured"))
    assert main(["profile", "x.py:make", "--html", str(tmp_path / "x.html")]) == 2
    assert "[format-absent]" in capsys.readouterr().err
