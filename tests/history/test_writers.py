"""Many writers at once, and writers that are killed: no run is lost, doubled or halved."""

import pytest
from benchmarks.history_writers import check, killed, together
from sqlalchemy import delete

from torchgauge.history.retention import LONGEST_WAIT
from torchgauge.history.store import Store
from torchgauge.history.tables import metrics

RIGHT = {"lost": 0, "doubled": 0, "unreadable": 0, "incomplete": 0}
MANY = [pytest.param(8, 1000, marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "runs"), [(3, 10), *MANY])
def test_all_that_is_written_together_is_there(writers, runs, location):
    said, seconds = together(location, writers, runs)
    print(f"{writers} × {runs}: the longest write took {max(seconds):.2f} s")
    assert len(set(said)) == writers * runs
    assert check(location, said) == RIGHT
    assert max(seconds) < LONGEST_WAIT


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_writers_leave_whole_runs(kills, location):
    said, _ = killed(location, kills)
    assert len(said) >= kills
    assert check(location, said) == RIGHT


@pytest.mark.thorough
def test_a_run_without_its_figures_would_be_seen(tmp_path):
    """What is checked above can be wrong."""
    location = str(tmp_path / "history.db")
    said, _ = together(location, 1, 2)
    with Store.open(location) as store:
        store.read(lambda connection: connection.execute(delete(metrics).where(metrics.c.run == 1)))
    assert check(location, [*said, "never saved"]) == RIGHT | {"lost": 1, "incomplete": 1}
