"""Which members of an archive are traces, how they are read, and what is not opened."""

import contextlib
import random
import zipfile

import pytest
from tests.support.archives import archive, encrypted, job, overlapping, tar, text

import torchgauge as tg
from torchgauge import InputError
from torchgauge.errors import TorchgaugeError
from torchgauge.readers import tar_archive, unpacking
from torchgauge.readers import tar_archive as archives
from torchgauge.readers.kineto.kineto import read_events


def written(path, data):
    path.write_bytes(data)
    return path


def test_members_that_end_as_traces_do_are_found_by_name(tmp_path):
    members = [("b.json", b""), ("c.txt", b""), ("a.json.gz", b""), ("d.chrome_trace", b"")]
    members += [("__MACOSX/._b.json", b""), ("sub/", b"")]
    path = written(tmp_path / "job.zip", archive(members))
    assert archives.trace_paths(path) == [
        path / "a.json.gz", path / "b.json", path / "d.chrome_trace"
    ]  # fmt: skip


def test_a_folder_in_the_archive_is_one_of_the_job(tmp_path):
    path = written(tmp_path / "job.zip", archive(job("out/today/")))
    assert [one.name for one in archives.trace_paths(path)] == ["rank0.json", "rank1.json.gz"]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"{}", archive(job())[:-30]])
def test_what_is_no_whole_archive_holds_no_members(tmp_path, data):
    assert archives.trace_paths(written(tmp_path / "x.zip", data)) == ()
    assert archives.trace_paths(tmp_path / "absent.zip") == ()


def test_a_member_is_read_as_a_stream(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "job.zip", archive(job()))
    for member in archives.trace_paths(path):
        for chunk in (16, 1 << 18):
            assert len(read_events(member, chunk_size=chunk)) == 3
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError) as caught:
        read_events(path / "rank7.json")
    assert caught.value.id == "file-missing"


def test_a_member_that_has_not_a_stored_name_is_found_all_the_same(tmp_path):
    path = written(tmp_path / "job.zip", archive([("./out//rank0.json", text()), ("x.txt", b"")]))
    (member,) = archives.trace_paths(path)
    assert len(read_events(member)) == 3


HOSTILE = {
    "above": ([("../rank0.json", text()), ("rank1.json", text())], "../rank0.json"),
    "above, as Windows writes it": ([("a\\..\\..\\rank0.json", text())], "leads out"),
    "absolute": ([("/etc/rank0.json", text()), ("/etc/rank1.json", text())], "/etc/rank0.json"),
    "of a drive": ([("C:rank0.json", text())], "C:rank0.json"),
    "twice": ([("rank0.json", text()), ("rank0.json", b"[]")], "Two files"),
    "twice, by another way": ([("rank0.json", text()), ("./rank0.json", b"[]")], "Two files"),
    "several folders": ([("a/rank0.json", text()), ("b/rank0.json", text())], "folders: a, b"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", HOSTILE)
def test_names_that_lead_elsewhere_or_nowhere_are_refused(tmp_path, kind):
    members, words = HOSTILE[kind]
    path = written(tmp_path / "job.zip", archive(members))
    for read in (archives.trace_paths, read_events):
        with pytest.raises(InputError) as caught:
            read(path)
        assert caught.value.id == "trace-archive"
        assert words in caught.value.cause
        assert caught.value.remedy


def test_a_name_that_leads_out_of_what_is_no_trace_is_never_used(tmp_path):
    path = written(tmp_path / "job.zip", archive([*job(), ("../../notes.txt", b"x")]))
    assert len(archives.trace_paths(path)) == 2


def test_a_trace_of_the_disk_is_not_read_by_a_name_of_the_archive(tmp_path):
    (tmp_path / "rank0.json").write_bytes(text())
    path = written(tmp_path / "job.zip", archive([("x/../../rank0.json", b"[]")]))
    with pytest.raises(InputError):
        read_events(path)


def test_an_archive_in_an_archive_is_not_opened(tmp_path):
    inner = archive([("rank0.json", text())])
    path = written(tmp_path / "job.zip", archive([("a.zip", inner), ("b.json", text())]))
    zipped, plain = archives.trace_paths(path)
    assert len(read_events(plain)) == 3
    for source in (zipped, written(tmp_path / "one.zip", archive([("a.zip", inner)]))):
        with pytest.raises(InputError) as caught:
            read_events(source)
        assert caught.value.id == "trace-archive"
        assert "archive in an archive" in caught.value.cause


def test_an_encrypted_member_is_named(tmp_path):
    path = written(tmp_path / "job.zip", encrypted(archive(job())))
    for member in archives.trace_paths(path):
        with pytest.raises(InputError) as caught:
            read_events(member)
        assert caught.value.id == "trace-packing"
        assert "encrypted" in caught.value.cause


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_unpacks_without_a_bound_is_not_unpacked(tmp_path, method):
    path = written(tmp_path / "job.zip", archive(job(), method=method))
    for member in archives.trace_paths(path):
        with pytest.raises(InputError) as caught:
            read_events(member)
        assert caught.value.id == "trace-packing"
        assert "not packed with deflate" in caught.value.cause


def test_members_that_share_their_bytes_are_refused(tmp_path):
    one = archive([("xxx.json", text() + b" " * 100_000)])
    path = written(tmp_path / "job.zip", overlapping(one, 200))
    with pytest.raises(InputError) as caught:
        archives.trace_paths(path)
    assert caught.value.id == "trace-archive"
    assert "share their bytes" in caught.value.cause


def test_a_member_that_inflates_beyond_reason_is_not_read_to_its_end(tmp_path):
    bomb = b'{"traceEvents":[' + b" " * (8 << 20) + b"]}"
    path = written(tmp_path / "job.zip", archive([("rank0.json", bomb), ("rank1.json", text())]))
    first, second = archives.trace_paths(path)
    with pytest.raises(InputError) as caught:
        read_events(first)
    assert caught.value.id == "trace-too-large"
    assert len(read_events(second)) == 3


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_TRACES", 3)
    path = written(tmp_path / "job.zip", archive([(f"{n}.json", b"[]") for n in range(4)]))
    with pytest.raises(InputError, match="not read") as caught:
        archives.trace_paths(path)
    assert "holds 4 traces" in caught.value.cause


@pytest.mark.parametrize("cases", [300, pytest.param(5_000, marks=pytest.mark.slow)])
def test_mutated_archives_are_traces_or_errors(cases, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    originals = [archive(job()), archive(job("a/")), archive(job(), method=zipfile.ZIP_STORED)]
    path = tmp_path / "job.zip"
    seen = set()
    for seed in range(cases):
        dice = random.Random(seed)
        data = bytearray(dice.choice(originals))
        # Half of the changes are in the directory at the end, which says where all is.
        begin = data.index(b"PK\x01\x02") if dice.random() < 0.5 else 0
        for _ in range(dice.randint(1, 5)):
            data[dice.randrange(begin, len(data))] = dice.randrange(256)
        path.write_bytes(data)
        try:
            members = archives.trace_paths(path)
            for one in members or [path]:
                with unpacking.open_trace(one) as file:
                    seen.add(len(b"".join(unpacking.unpacked(file, "it", 100))) > 0)
        except (TorchgaugeError, unpacking.PackingError) as error:
            seen.add(getattr(error, "id", "damaged"))
    assert {True, "damaged", "trace-archive"} <= seen
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.thorough
@pytest.mark.parametrize("packing", ["", "gz"])
def test_a_tar_archive_is_as_its_folder(tmp_path, packing):
    path = written(tmp_path / "job.tar", tar(job("out/today/"), packing=packing))
    members = tar_archive.tar_paths(path)
    assert [member.name for member in members] == ["rank0.json", "rank1.json.gz"]
    for member in members:
        for chunk in (16, 1 << 18):
            assert len(read_events(member, chunk_size=chunk)) == 3
    assert list(tmp_path.iterdir()) == [path]
    record = tg.read_trace(path)
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert tg.read_trace(path, rank=1).ranks[0] == record.ranks[1]
    with pytest.raises(InputError) as caught:
        read_events(path / "out/today/rank7.json")
    assert caught.value.id == "file-missing"


@pytest.mark.parametrize("packing", ["", "gz"])
def test_a_tar_archive_of_one_trace_is_a_trace(tmp_path, packing):
    members = [("trace.json", text()), ("notes.txt", b"x")]
    path = written(tmp_path / "trace.tgz", tar(members, packing=packing, link="rank9.json"))
    assert len(read_events(path)) == 3  # a link is not followed
    assert len(tg.read_trace(path).ranks) == 1


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("../rank0.json", text()), ("rank1.json", text())], "leads out of it"),
        ([("rank0.json", text()), ("rank0.json", text())], "have the name"),
        ([("a/rank0.json", text()), ("b/rank0.json", text())], "several folders"),
        ([("notes.txt", b"x")], "holds 0 traces"),
        ([("inner.zip", archive(job()))], "archive in an archive"),
    ],
)
def test_a_tar_archive_of_a_stranger_is_refused(tmp_path, members, says):
    path = written(tmp_path / "job.tar", tar(members))
    with pytest.raises(InputError, match=says) as caught:
        tg.read_trace(path)
    assert caught.value.id == "trace-archive"


@pytest.mark.parametrize("packing", ["", "gz"])
def test_a_damaged_tar_archive_is_no_crash(tmp_path, packing):
    dice = random.Random(7)
    data = tar(job(), packing=packing)
    for number in range(60):
        changed = bytearray(data[: dice.randrange(1, len(data))] if number % 2 else data)
        for _ in range(3):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        path = written(tmp_path / "job.tar", bytes(changed))
        with contextlib.suppress(InputError):
            for member in tar_archive.tar_paths(path) or [path]:
                read_events(member)
