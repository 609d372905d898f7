"""Memory snapshots read from files, and what of them is written."""

import csv
import io
import json
import subprocess
import sys

import pytest
from rich.console import Console
from tests.support import snapshots as made
from tests.support.snapshots import BASE, LOG, MIB, PUBLIC, block, failing, segment, whole

import torchgauge as tg
from torchgauge.analyze.snapshot.growth import growth
from torchgauge.cli.main import main
from torchgauge.records import codec
from torchgauge.report.console.console import view
from torchgauge.report.console.plain import plain


@pytest.fixture
def file(tmp_path):
    return made.written(failing(), tmp_path / "snapshot.pickle")


def test_a_file_is_read_and_saved_and_read_again(file, tmp_path):
    found = tg.read_snapshot(file)
    assert found.name == "snapshot.pickle"
    assert found.devices[0].ooms[0].cause == "fragmentation"
    assert tg.load(found.save(tmp_path / "s.json")) == found
    assert tg.load(file) == found


def test_no_part_of_it_needs_torch(file, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchgauge.cli.main import main\n"
        f"raise SystemExit(main(['snapshot', {str(file)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Out of memory at 16.78 MB" in done.stdout


def test_a_pickle_that_runs_code_is_refused_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = b"\x80\x02cos\nmkdir\nX\x06\0\0\0it-ran\x85R."
    (tmp_path / "s.pickle").write_bytes(data)
    assert main(["snapshot", "s.pickle"]) == 2
    assert "pickle-unsafe" in capsys.readouterr().err
    assert main(["compare", "s.pickle", "s.pickle"]) == 2
    assert main(["trace", "s.pickle"]) == 2
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_fits_its_width_and_says_what_matters(file, width):
    found = tg.read_snapshot(file)
    with io.StringIO() as out:
        Console(file=out, width=width).print(view(found, width=width))
        text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for said in (
        "Out of memory at 16.78 MB: enough was free, but in no single block",
        "log.py:7 keep keeps its allocations: 20.97 MB",
        "waits for other streams to release 20.97 MB",
        "settings      roundup 1",
        "Alive at the peak",
        "log.py:7 keep ← train.py:10 main",
        "pool 0.3",
        "fragmentation",
    ):
        assert said in text, said
    assert "…" not in text.split("Alive at the end")[1]


def test_names_of_others_command_no_terminal(tmp_path):
    evil = "a\x1b[31m\n::error::\u202e.py"
    stack = made.frames("x:1:y")
    stack[0].update(filename=f"/{evil}", name=evil)
    trace = made.Allocator()
    trace.alloc(BASE, MIB, stack)
    content = whole([segment(BASE, block(BASE, MIB, stack=stack))], trace)
    path = made.written(content | {"allocator_settings": {evil: evil}}, tmp_path / "s.pickle")
    empty = made.written(whole([]), tmp_path / "empty.pickle")
    found = tg.read_snapshot(path)
    for text in (
        str(found),
        str(growth(found, found)),
        str(growth(tg.read_snapshot(empty), found)),
    ):
        assert not {"\x1b", "\u202e"} & set(text)
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert "\\x1b[31m" in text


def test_tables_read_back(file):
    found = tg.read_snapshot(file)
    one = found.devices[0]

    def read(table):
        return list(csv.DictReader(io.StringIO(found.to_csv(table=table))))

    (figures,) = read("figures")
    assert int(figures["reserved"]) == one.reserved
    assert int(figures["largest_free"]) == one.fragmentation.largest
    stacks = read("stacks")
    assert sum(int(row["end_bytes"]) for row in stacks) == one.allocated + one.pending
    assert sum(int(row["peak_bytes"]) for row in stacks) == one.peak.bytes
    assert "/home/me/log.py:7:keep;/home/me/train.py:10:main" in {row["stack"] for row in stacks}
    assert sum(int(row["size"]) for row in read("segments")) == one.reserved
    assert len(read("timeline")) == len(one.timeline)
    assert read("ooms")[0]["cause"] == "fragmentation"
    assert read("ooms")[0]["stack"] == "/home/me/train.py:42:step;/home/me/train.py:10:main"
    with pytest.raises(tg.InputError) as caught:
        found.to_csv(table="kernels")
    assert caught.value.id == "no-tree"


def test_the_command_prints_and_writes(file, tmp_path, capsys):
    assert main(["snapshot", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "torchgauge.snapshot/1"
    assert main(["snapshot", str(file), "--csv"]) == 0
    assert capsys.readouterr().out.startswith("device,peak_bytes")
    out = tmp_path / "out"
    forms = ["--format", "json,text,csv"]
    assert main(["snapshot", str(file), "--output-dir", str(out), *forms]) == 0
    said = capsys.readouterr()
    assert {path.name for path in out.iterdir()} == {
        "snapshot.json", "snapshot.txt", "snapshot.csv"
    }  # fmt: skip
    assert main(["report", str(out / "snapshot.json")]) == 0
    assert capsys.readouterr().out == said.out
    assert main(["snapshot", str(file), "--output-dir", str(out), "--format", "markdown"]) == 0
    assert (out / "snapshot.md").read_text() == tg.read_snapshot(file).to_markdown()
    assert main(["snapshot", str(file), "--output-dir", str(out), "--format", "folded"]) == 2


def test_a_pickle_given_as_a_trace_is_sent_on(file, capsys):
    assert main(["trace", str(file)]) == 2
    said = capsys.readouterr().err
    assert "torchgauge snapshot" in said
    assert "trace-not-json" in said


def leaking(path, blocks):
    held = [block(BASE + at * MIB, MIB, stack=LOG) for at in range(blocks)]
    return made.written(whole([segment(BASE, *held)]), path)


def test_compare_of_two_shows_what_grew(tmp_path, capsys):
    before, after = (leaking(tmp_path / f"{n}.pickle", n) for n in (3, 10))
    assert main(["compare", str(before), str(after)]) == 0
    said = capsys.readouterr().out
    assert "+7.34 MB from 3.146 MB" in said
    assert "What grew" in said
    assert "log.py:7 keep ← train.py:10 main" in said
    out = ["--output-dir", str(tmp_path / "out"), "--format", "json,text,csv,markdown"]
    assert main(["compare", str(before), str(after), "--json", *out]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "torchgauge.growth/1"
    found = tg.load(tmp_path / "out" / "growth.json")
    assert str(found).strip() == said.strip()
    assert "device,before,after" in (tmp_path / "out" / "growth.csv").read_text()
    assert (tmp_path / "out" / "growth.md").read_text() == found.to_markdown()
    assert str(found) == plain(lambda width: view(found, width=width))


def test_saved_records_of_snapshots_compare_as_their_files_do(tmp_path, capsys):
    paths = [leaking(tmp_path / f"{n}.pickle", n) for n in (3, 10)]
    saved = [str(tg.read_snapshot(path).save(path.with_suffix(".json"))) for path in paths]
    assert main(["compare", *map(str, paths)]) == 0
    direct = capsys.readouterr().out
    assert main(["compare", *saved]) == 0
    assert capsys.readouterr().out == direct
    read = [tg.read_snapshot(path) for path in paths]
    for sides in (paths, saved, read, (read[0], saved[1])):
        grown = tg.compare(*sides)
        assert grown.after - grown.before == 7 * MIB


def test_a_snapshot_and_a_run_cannot_be_compared(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"schema": "torchgauge.profile/1"}')
    path = leaking(tmp_path / "s.pickle", 1)
    assert main(["compare", str(path), str(tmp_path / "run.json")]) == 2
    assert capsys.readouterr().err


def test_the_public_sample_is_told():
    found = tg.read_snapshot(PUBLIC)
    text = str(found)
    assert "2.255 GB" in text
    assert max(map(len, text.splitlines())) <= 80
    assert codec.decode(codec.encode(found)) == found
