"""A history that was written before fields were renamed: nothing of it is lost or saved twice."""

import gzip
import json
import shutil
import zlib

import pytest
from sqlalchemy import text
from tests.support import history_runs as runs
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.history.content import digest
from torchgauge.history.imports import entries
from torchgauge.history.store import Store
from torchgauge.history.trend import trend
from torchgauge.records.run import Facts

RECORDS = ROOT / "tests" / "data" / "records"
LAST = "SELECT id, profile FROM runs ORDER BY created DESC LIMIT 1"


@pytest.fixture
def file(tmp_path):
    """Eight runs at c0 to c7 as version 3 has them, in records of profile/1; c5 is slower."""
    path = tmp_path / "history.db"
    with gzip.open(RECORDS / "history-v3.db.gz") as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    return path


@pytest.fixture
def store(file):
    with Store.open(str(file)) as opened:
        yield opened


def old_profile(store):
    """Return the newest run's record as it lies in the store."""
    _, packed = store.read(lambda connection: connection.execute(text(LAST)).one())
    return json.loads(zlib.decompress(packed))


def test_the_store_holds_records_of_the_old_schema(store):
    content = old_profile(store)
    assert content["schema"] == "torchgauge.profile/1"
    assert content["tree"]["rows"][-1]["unsaid"] == 2


def test_old_runs_are_read_and_compared_with_new_ones(store):
    assert [run.commit for run in store.runs()] == [f"c{day}" for day in range(8)]
    old = store.profile(store.find("latest").uuid)
    assert old.schema == "torchgauge.profile/2"
    assert old.tree.rows[-1].calls_without_bytes == 2
    new = runs.profile(9, latency=0.013, layers={"a": 107, "b": 7})
    compared = tg.compare(old, new)
    assert compared.timing_comparable
    assert compared.change_of("latency").change == pytest.approx(0.0)
    assert [place.contribution for place in compared.layers if place.name == "a"] == [0.0]


def test_old_and_new_runs_are_one_series(store):
    for day in range(8, 12):
        store.add(runs.run(day, latency=0.013, layers={"a": 100 + day, "b": 7}))
    (series,) = trend(store, metrics=["latency_median"]).series
    assert [point.commit for point in series.points] == [f"c{day}" for day in range(12)]
    (change,) = series.changes
    assert (change.likeliest, change.after, change.until) == (5, "c4", "c5")
    (layer,) = trend(store, metrics=["host_time"], layer="a").series
    assert layer.values == pytest.approx([(100 + day) * 1e-9 for day in range(12)])


def test_an_old_record_is_not_saved_again(store, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(old_profile(store)))
    (again,) = entries(path, Facts())
    assert store.add(again) == (store.find("latest").uuid, False)


def test_an_old_export_is_read_and_not_saved_again(store, tmp_path):
    exported = list(entries(RECORDS / "history-v3.jsonl", Facts()))
    assert [entry.run.commit for entry in exported] == ["c0", "c1"]
    assert [store.add(entry)[1] for entry in exported] == [False, False]
    with Store.open(str(tmp_path / "other.db")) as other:
        assert [other.add(entry)[1] for entry in exported] == [True, True]
        assert other.runs()[0].digest == digest(exported[0].profile)


def test_what_is_damaged_stays_as_it_is_and_the_others_get_digests(file):
    with Store.open(str(file)) as store:
        store.migrate(3)
        number, _ = store.read(lambda connection: connection.execute(text(LAST)).one())
        damage = text("UPDATE runs SET profile = :nothing, digest = 'd' WHERE id = :id")
        store.read(lambda c: c.execute(damage, {"nothing": b"?", "id": number}))
    with Store.open(str(file)) as store:
        *digests, damaged = [run.digest for run in store.runs()]
        assert damaged == "d"
        assert digests == [digest(store.profile(run.uuid)) for run in store.runs()[:-1]]


@pytest.mark.thorough
def test_down_and_up_again_loses_nothing(file):
    with Store.open(str(file)) as store:
        before = store.runs()
        store.migrate(3)
    with Store.open(str(file)) as store:
        assert store.runs() == before


@pytest.mark.thorough
def test_a_record_that_an_older_torchgauge_saved_again_does_not_stop_the_migration(file):
    """It cannot tell that it has the run already."""
    same = text(
        "UPDATE runs SET digest = 'old', profile = (SELECT profile FROM runs WHERE uuid = :first) "
        "WHERE uuid = :second"
    )
    with Store.open(str(file)) as store:
        first, second, *others = store.runs()
        store.migrate(3)
        store.read(lambda c: c.execute(same, {"first": first.uuid, "second": second.uuid}))
    with Store.open(str(file)) as store:
        digests = [run.digest for run in store.runs()]
        assert digests == [first.digest, "old", *(run.digest for run in others)]
