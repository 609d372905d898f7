"""Every reader against mutations of whole files: a result or one of our errors, in bounded time.

The short form is for each run of the tests; the long one, of 2,000 cases each, prints what it
counted. A case that falls is shown by `python -m tests.attack.batch_child READER CASE`.
"""

import os

import pytest
from tests.attack.batch_child import read
from tests.attack.batches import attack
from tests.attack.readers import READERS

LONG = int(os.environ.get("TORCHGAUGE_ATTACK_CASES", "2000"))
SHORT = 4
# What is damaged is done without: a cache, what the host remembers, what the machine tells.
DONE_WITHOUT = ("cached_trace", "state_files", "machine_files")


@pytest.mark.attack
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_gives_a_result_or_one_of_our_errors(reader, tmp_path):
    found = attack(reader, LONG, tmp_path)
    assert not found.fallen
    assert "no id" not in found.said  # it could not be told from another
    assert found.said["result"] or reader == "program"  # which is refused whatever it holds
    # Else the mutations hurt nothing.
    assert len(found.said) > 1 or reader in DONE_WITHOUT


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
def test_a_few_cases_of_a_reader(reader, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))
    assert all(read(reader, case, tmp_path) != "no id" for case in range(SHORT))
