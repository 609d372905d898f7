"""Files of processes: whole or not at all, whatever ends the writer or damages the file."""

import os

import pytest

from torchgauge.monitoring import process_file
from torchgauge.monitoring.process_file import ProcessFile, read


def test_the_newest_data_are_read_and_the_owner_is_alive(tmp_path):
    file = ProcessFile(tmp_path / "a.monitor")
    assert read(file.path) == (None, True)
    for number in range(5):
        file.write(b"%d" % number * (number * 9000 + 1))
        assert read(file.path) == (b"%d" % number * (number * 9000 + 1), True)
    file.close()
    assert read(file.path) == (b"4" * 36001, False)


def test_a_write_that_is_cut_off_leaves_the_one_before(tmp_path, monkeypatch):
    file = ProcessFile(tmp_path / "a.monitor")
    file.write(b"first")
    file.write(b"second")
    write = os.pwrite
    for allowed in range(2):  # in the data; between the data and the entry
        writes = iter(range(allowed))

        def cut(descriptor, data, offset, writes=writes):
            if next(writes, None) is None:
                write(descriptor, data[: len(data) // 2], offset)
                raise KeyboardInterrupt
            return write(descriptor, data, offset)

        monkeypatch.setattr(os, "pwrite", cut)
        with pytest.raises(KeyboardInterrupt):
            file.write(b"third and longer")
        monkeypatch.setattr(os, "pwrite", write)
        assert read(file.path)[0] == b"second"
    file.write(b"fourth")
    assert read(file.path)[0] == b"fourth"


def test_damage_is_noticed(tmp_path):
    file = ProcessFile(tmp_path / "a.monitor")
    file.write(b"older")
    file.write(b"newer")
    content = bytearray(file.path.read_bytes())
    at = content.index(b"newer")
    content[at] ^= 1
    file.path.write_bytes(content)
    assert read(file.path)[0] == b"older"
    for unwritten in (b"", bytes(5000)):
        file.path.write_bytes(unwritten)
        assert read(file.path)[0] is None
    content[at] ^= 1
    content[content.index(b"older")] ^= 1
    for foreign in (
        b"x" * 100,
        os.urandom(5000),
        content[:4097],
        bytes(content).replace(b"newer", b"NEWER"),
    ):
        file.path.write_bytes(foreign)
        with pytest.raises(ValueError, match="no valid data"):
            read(file.path)


def test_more_data_than_a_reader_takes_are_refused_and_named(tmp_path, monkeypatch):
    file = ProcessFile(tmp_path / "a.monitor")
    file.write(b"small")
    monkeypatch.setattr(process_file, "LARGEST", 100_000)
    for size in (60_000, 100_000):  # beyond that in the file, and not in what is read of it
        file.write(bytes(size))
        assert read(file.path) == (bytes(size), True)
    with pytest.raises(OSError, match="File too large"):
        file.write(bytes(100_001))
    assert read(file.path) == (bytes(100_000), True)
    file.write(b"small")
    monkeypatch.setattr(process_file, "LARGEST", 200_000)
    file.write(bytes(200_000))
    monkeypatch.setattr(process_file, "LARGEST", 100_000)
    with pytest.raises(OSError, match="File too large"):  # and not the older data
        read(file.path)


def test_a_full_disk_is_found_before_anything_is_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    file = ProcessFile(tmp_path / "a.monitor")
    file.write(b"held")
    file.write(b"held too")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        file.write(bytes(10**6))
    assert read(file.path)[0] == b"held too"
    file.write(b"fits")  # into what was reserved
    assert read(file.path)[0] == b"fits"
    with pytest.raises(OSError, match="No space"):
        ProcessFile(tmp_path / "b.monitor")
    assert not (tmp_path / "b.monitor").exists()


def test_a_file_system_without_locks_says_nothing_of_the_owner(tmp_path, monkeypatch):
    file = ProcessFile(tmp_path / "a.monitor")
    file.write(b"data")
    monkeypatch.setattr(process_file, "fcntl", None)
    assert read(file.path) == (b"data", None)
