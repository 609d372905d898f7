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
    for foreign in (b"", b"x" * 100, bytes(5000), os.urandom(5000)):
        file.path.write_bytes(foreign)
        assert read(file.path)[0] is None


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
