"""A zip archive with the traces of several ranks says what their folder does."""

import json
import zipfile

import msgspec
import pytest
from tests.support import evidence
from tests.support.archives import archive, encrypted, job, text
from tests.support.ranks_here import read_here

import torchgauge as tg
from torchgauge.cli.main import main


@pytest.fixture(autouse=True)
def _no_children(monkeypatch):
    read_here(monkeypatch)


def same(found, other):
    """Compare records apart from the names of their sources."""
    return msgspec.structs.replace(found, name="") == msgspec.structs.replace(other, name="")


@pytest.fixture
def sources(tmp_path):
    """A folder with the files of three ranks of which one comes late, and the archive of it."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    evidence.job(folder)
    (folder / "notes.txt").write_text("of the run")
    packed = tmp_path / "ranks.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for path in folder.iterdir():
            made.write(path, f"ranks/{path.name}")
    return folder, packed


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_archive_says_what_its_folder_does(sources, tmp_path, workers, monkeypatch):
    monkeypatch.undo()  # in processes of their own
    folder, packed = sources
    before = sorted(tmp_path.rglob("*"))
    found = tg.read_trace(packed, workers=workers)
    assert found.name == "ranks.zip"
    assert [one.file for one in found.ranks] == ["rank0.json", "rank1.json", "rank2.json"]
    assert found.job.straggler == 1
    assert same(found, tg.read_trace(folder, workers=1))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.thorough
def test_options_reach_each_member(sources):
    folder, packed = sources
    limited = [tg.read_trace(one, workers=1, memory_limit=10**9) for one in (packed, folder)]
    assert same(*limited)


def test_an_archive_with_one_trace_is_that_trace(tmp_path):
    (tmp_path / "one.zip").write_bytes(archive([("a/trace.json", text()), ("x.txt", b"")]))
    (tmp_path / "one.json").write_bytes(text())
    found, plain = (tg.read_trace(tmp_path / name) for name in ("one.zip", "one.json"))
    assert found.ranks[0].file == "one.zip"
    rank = msgspec.structs.replace(found.ranks[0], file="one.json")
    tree = msgspec.structs.replace(rank.tree, rows=plain.ranks[0].tree.rows)
    assert msgspec.structs.replace(rank, tree=tree) == plain.ranks[0]


@pytest.mark.thorough
def test_one_bad_member_does_not_cost_the_others(tmp_path, monkeypatch):
    monkeypatch.undo()  # in processes of their own
    members = [*job(), ("rank2.json", b'{"traceEvents": [{"ph'), ("rank3.zip", archive(job()))]
    (tmp_path / "job.zip").write_bytes(archive(members))
    found = tg.read_trace(tmp_path / "job.zip", workers=1)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert [one.id for one in found.warnings] == ["trace-truncated", "trace-archive"]
    assert "job.zip/rank2.json" in found.warnings[0].message


def test_where_no_member_can_be_read_the_first_error_is_raised(tmp_path, capsys):
    path = tmp_path / "job.zip"
    path.write_bytes(encrypted(archive(job())))
    assert main(["trace", str(path)]) == 2
    said = capsys.readouterr().err
    assert "[trace-packing]" in said
    assert "encrypted" in said


def test_an_archive_without_traces_says_so(tmp_path, capsys):
    path = tmp_path / "notes.zip"
    path.write_bytes(archive([("notes.txt", b"x")]))
    assert main(["trace", str(path)]) == 2
    said = capsys.readouterr().err
    assert "[trace-archive]" in said
    assert "notes.txt" in said


def test_a_rank_of_an_archive_is_converted(sources, tmp_path):
    texts = {}
    for form in ("chrome", "folded", "speedscope"):
        for source in sources:
            written = tg.convert_trace(source, form, tmp_path / "out", rank=2).read_bytes()
            texts.setdefault(form, set()).add(written)
    assert [len(found) for found in texts.values()] == [1, 1, 1]
    (chrome,) = texts["chrome"]
    assert json.loads(chrome)["distributedInfo"]["rank"] == 2
    with pytest.raises(tg.InputError) as caught:
        tg.convert_trace(sources[1], "folded", tmp_path / "out", rank=7)
    assert caught.value.id == "rank-unknown"
    assert "0, 1, 2" in caught.value.cause


@pytest.mark.slow
def test_archives_are_compared_as_folders_are(sources, capsys):
    folder, packed = sources
    assert main(["compare", str(packed), str(packed), "--rank", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["window"], found["baseline"]["rank"]) == (0.0, 1)
    assert same(tg.load(packed), tg.load(folder))


@pytest.mark.thorough
def test_nothing_is_cached_beside_an_archive_and_that_is_said(sources, tmp_path):
    pytest.importorskip("pyarrow")
    _, packed = sources
    before = sorted(tmp_path.rglob("*"))
    found = tg.read_trace(packed, cache=True, workers=1)
    warned = {one.id for rank in found.ranks for one in rank.tree.warnings + rank.warnings}
    assert "trace-cache-unwritten" in warned
    assert sorted(tmp_path.rglob("*")) == before
