"""A store goes up and down through its versions and loses no run."""

import sqlite3

import pytest
from sqlalchemy import inspect, text
from tests.support import history_runs as runs

from torchgauge.errors import StoreError
from torchgauge.history import tables
from torchgauge.history.imports import entries
from torchgauge.history.store import Store
from torchgauge.history.tables import LATEST, layers, metadata, metrics, yardsticks
from torchgauge.records.run import Facts


@pytest.fixture
def store(location):
    with Store.open(location) as opened:
        yield opened


def layer_rows(store):
    query = layers.select().order_by(layers.c.run, layers.c.path, layers.c.metric)
    return store.read(lambda connection: [tuple(row) for row in connection.execute(query)])


def test_a_new_store_is_what_the_program_reads(store):
    """The database has the tables that `tables.py` describes, column for column."""

    def described(connection):
        found = inspect(connection)
        return {
            name: (
                {
                    (c["name"], c["nullable"], c["type"].python_type)
                    for c in found.get_columns(name)
                },
                {index["name"] for index in found.get_indexes(name) if not index["unique"]},
                tuple(found.get_pk_constraint(name)["constrained_columns"]),
                [key["referred_table"] for key in found.get_foreign_keys(name)],
                {one["column_names"][0] for one in found.get_unique_constraints(name)},
            )
            for name in metadata.tables
        }

    assert store.read(described) == {
        name: (
            {(c.name, bool(c.nullable), c.type.python_type) for c in table.columns},
            {index.name for index in table.indexes},
            tuple(column.name for column in table.primary_key),
            [key.column.table.name for key in table.foreign_keys],
            {column.name for column in table.columns if column.unique},
        )
        for name, table in metadata.tables.items()
    }


def test_up_and_down_again_keeps_every_run(store, location, monkeypatch):
    made = [runs.run(day, layers={"a": 10 + day, "b": 20}, labels={"l": "1"}) for day in range(3)]
    for one in made:
        store.add(one)
    before, held = layer_rows(store), store.runs()
    assert before
    runs.second_version(monkeypatch)
    with Store.open(location) as again:  # opening brings it up
        assert "notes" in again.read(lambda c: inspect(c).get_table_names())
        again.migrate(1)
        assert "notes" not in again.read(lambda c: inspect(c).get_table_names())
        assert again.runs() == held
    with Store.open(location) as again:
        assert again.runs() == held == [one.run for one in made]
        assert layer_rows(again) == before
        again.migrate(0)
        assert again.read(lambda c: inspect(c).get_table_names()) == []
    with Store.open(location) as empty:
        assert empty.runs() == []


def test_reference_work_and_scopes_are_columns(store):
    """Runs without have none; they go with their run."""
    work = {"python": 0.001, "waiting": 1.5}
    store.add(runs.run(0, work=work, scope="runs"))
    store.add(runs.run(1))

    def held(connection):
        of_work = connection.execute(yardsticks.select().order_by(yardsticks.c.kind))
        scopes = metrics.select().where(metrics.c.name == "latency_median").order_by(metrics.c.run)
        return (
            [tuple(row)[1:] for row in of_work],
            [(row.low, row.scope) for row in connection.execute(scopes)],
        )

    assert store.read(held) == (list(work.items()), [(0.0099, "runs"), (0.0099, None)])
    store.remove([run.uuid for run in store.runs()])
    assert store.read(held) == ([], [])


def test_a_newer_store_is_refused(store, location):
    store.add(runs.run())

    def newer(connection):
        connection.execute(text(f"UPDATE torchgauge_store SET version = {LATEST + 1}"))

    store.read(newer)
    with pytest.raises(StoreError, match=f"version {LATEST + 1}; .* up to {LATEST}") as error:
        Store.open(location)
    assert error.value.id == "store-newer"


def test_a_migration_that_fails_changes_nothing(store, monkeypatch):
    store.add(runs.run(layers={"a": 1}))
    before = layer_rows(store)

    class Broken:
        @staticmethod
        def up(connection):
            connection.execute(text("DELETE FROM layers"))
            connection.execute(text("SELECT nonsense"))

    monkeypatch.setattr(tables, "STEPS", (*tables.STEPS, Broken))
    with pytest.raises(StoreError, match="refused"):
        store.migrate(LATEST + 1)
    assert layer_rows(store) == before


def test_another_programs_tables_are_left_alone(tmp_path):
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE runs (mine TEXT)")
    with pytest.raises(StoreError, match="not a history") as error:
        Store.open(str(file))
    assert error.value.id == "store-damaged"
    assert "another program" in error.value.cause


def test_a_version_that_is_no_number_is_damage(tmp_path):
    file = tmp_path / "damaged.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE torchgauge_store (version INTEGER)")
        connection.execute("INSERT INTO torchgauge_store VALUES (NULL)")
    with pytest.raises(StoreError) as error:
        Store.open(str(file))
    assert error.value.id == "store-damaged"


def test_an_older_store_is_imported_and_stays_old(tmp_path, monkeypatch):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    made = [runs.run(day, layers={"a": day + 1}) for day in range(3)]
    with Store.open(str(old)) as store:
        for one in made:
            store.add(one)
    content = old.read_bytes()
    runs.second_version(monkeypatch)
    with Store.open(str(new)) as store:
        for one in entries(old, Facts()):
            assert store.add(one) == (one.run.uuid, True)
        assert store.runs() == [one.run for one in made]
        assert layer_rows(store)
    assert old.read_bytes() == content
