"""The file of finished cells: what a kill leaves, and whose it is."""

import errno
import os

import pytest
from tests.support.sweeps import SWEPT, journal_entry

from torchgauge.errors import InputError
from torchgauge.sweeps.journal import Journal


def test_what_is_added_is_there_again(tmp_path):
    path = tmp_path / "new" / "cells.jsonl"
    with Journal(path, SWEPT) as journal:
        journal.add(journal_entry(1))
        journal.add(journal_entry(2, 2))
    with Journal(path, SWEPT) as again:
        assert list(again.entries.values()) == [journal_entry(1), journal_entry(2, 2)]
        again.add(journal_entry(4))
    with Journal(path, SWEPT) as third:
        assert len(third.entries) == 3


@pytest.mark.parametrize("cut", [0, 1, 5, 40, 200, 1000])
def test_a_line_cut_off_by_a_kill_is_forgotten_and_the_next_is_whole(cut, tmp_path):
    path = tmp_path / "cells.jsonl"
    with Journal(path, SWEPT) as journal:
        journal.add(journal_entry(1))
        journal.add(journal_entry(2))
    whole = path.read_bytes()
    second = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    path.write_bytes(whole[: min(second + cut, len(whole) - 1)])
    with Journal(path, SWEPT) as again:
        assert [one.cell for one in again.entries.values()] == [journal_entry(1).cell]
        again.add(journal_entry(2))
    assert path.read_bytes() == whole


def test_a_file_killed_within_its_first_line_begins_anew(tmp_path):
    path = tmp_path / "cells.jsonl"
    path.write_bytes(b'{"schema":"torchg')
    with Journal(path, SWEPT) as journal:
        journal.add(journal_entry(1))
    with Journal(path, SWEPT) as again:
        assert len(again.entries) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"schema":"torchgauge.sweep-journal/1","sweep":{"target":"other.py:f","torch":"2.13"}}\n',
         "target was other.py:f, is model.py:make"),
        (b'{"schema":"torchgauge.sweep-journal/9","sweep":{}}\n', "journal/9"),
        (b"batch,latency\n1,2\n", "does not begin"),
        (b"a file of the user's without an end of line", "does not begin"),
        (b'{"schema":"torchgauge.sweep/1","target":{}}', "does not begin"),
        (b'{"schema":"torchgauge.sweep-journal/1","sweep":{"target":"model.py:make","torch":"2.13"}}\n'
         b"no cell\n", "line cannot be read"),
    ],
)  # fmt: skip
def test_a_file_of_another_sweep_is_refused_and_left_as_it_is(content, says, tmp_path):
    path = tmp_path / "cells.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught, Journal(path, SWEPT):
        pass
    assert caught.value.id == "sweep-other"
    assert says in caught.value.cause
    assert str(path) in caught.value.message
    assert path.read_bytes() == content


def test_two_sweeps_do_not_share_a_file(tmp_path):
    path = tmp_path / "cells.jsonl"
    with Journal(path, SWEPT):
        with pytest.raises(InputError) as caught, Journal(path, SWEPT):
            pass
        assert caught.value.id == "sweep-running"
    with Journal(path, SWEPT):
        pass


def test_a_folder_that_is_none_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught, Journal(tmp_path / "file" / "cells.jsonl", SWEPT):
        pass
    assert caught.value.id == "output-unwritable"


def test_a_disk_that_gets_full_is_warned_of_and_costs_no_result(tmp_path, monkeypatch):
    path = tmp_path / "cells.jsonl"

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path, SWEPT) as journal:
        journal.add(journal_entry(1))
        monkeypatch.setattr(os, "fsync", full)
        journal.add(journal_entry(2))
        monkeypatch.undo()
        journal.add(journal_entry(4))  # after a line that may be cut off nothing is added
        assert len(journal.entries) == 3
        assert "No space left" in journal.warning.message
    with Journal(path, SWEPT) as again:
        assert (journal_entry(4).cell.settings, 1) not in again.entries
    assert again.warning is None


def test_a_disk_that_is_full_at_the_start_is_said_before_anything_is_measured(
    tmp_path, monkeypatch
):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError) as caught, Journal(tmp_path / "cells.jsonl", SWEPT):
        pass
    assert caught.value.id == "output-unwritable"
