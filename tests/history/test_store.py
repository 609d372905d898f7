"""What is added is there, once and whole, and is found by what is known of it."""

import threading

import msgspec
import pytest
from tests.support import exported_records
from tests.support import history_runs as runs

from torchgauge.errors import InputError, RecordError
from torchgauge.history.content import entry, moment
from torchgauge.history.store import Selection, Store
from torchgauge.history.tables import labels, layers, metrics
from torchgauge.records import codec
from torchgauge.records.run import Facts


@pytest.fixture
def store(location):
    with Store.open(location) as opened:
        yield opened


def rows(store, table):
    return store.read(lambda connection: [tuple(row) for row in connection.execute(table.select())])


def test_a_run_comes_back_as_it_was(store):
    # Names that break careless writers, in every text that is stored.
    made = entry(
        exported_records.profile(gpu=True),
        Facts(commit="é'\"", branch="漢", dirty=True, message="a\nb", labels={"k'": 'v"'}),
    )
    assert store.add(made) == (made.run.uuid, True)
    (found,) = store.entries()
    assert found.run == made.run
    assert codec.encode(found.profile) == codec.encode(made.profile)


def test_columns_hold_the_figures(store):
    store.add(runs.run(latency=0.012, layers={"a": 2000, "b": 3000}, labels={"k": "v"}))
    figures = {name: (unit, how, value, low, high) for _, name, unit, how, value, low, high, _ in
               rows(store, metrics)}  # fmt: skip
    assert figures["latency_median"] == ("s", "measured", 0.012, 0.99 * 0.012, 1.01 * 0.012)
    assert figures["parameters"][1] == "counted"
    assert "macs" not in figures  # nothing was counted: unknown is no row, and never 0
    times = {path: value for _, path, metric, value in rows(store, layers) if metric == "host_time"}
    assert times == pytest.approx({"": 6e-6, "a": 2e-6, "b": 3e-6})
    assert [row[1:] for row in rows(store, labels)] == [("k", "v")]


def test_the_same_record_is_saved_once(store):
    first, again = runs.run(), runs.run(commit="another")
    assert first.run.uuid != again.run.uuid
    assert store.add(first) == (first.run.uuid, True)
    assert store.add(again) == (first.run.uuid, False)
    assert store.add(first) == (first.run.uuid, False)
    assert len(store.runs()) == 1


def test_the_same_record_from_many_threads_is_saved_once(location):
    made = [runs.run() for _ in range(8)]
    answers = []

    def write(one):
        with Store.open(location) as own:
            answers.append(own.add(one))

    threads = [threading.Thread(target=write, args=(one,)) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store.open(location) as store:
        (held,) = store.runs()
    assert sorted(new for _, new in answers) == [False] * 7 + [True]
    assert {uuid for uuid, _ in answers} == {held.uuid}


def test_selection(store):
    early, late = runs.run(1, labels={"a": "1", "b": "2"}), runs.run(2, branch="feature")
    other = runs.run(3, target="other.py:make", memory=64_000_000_000, labels={"a": "2"})
    for one in (late, other, early):
        store.add(one)

    def days(**chosen):
        return [run.commit for run in store.runs(Selection(**chosen))]

    assert days() == ["c1", "c2", "c3"]  # oldest first, in whatever order they were added
    assert days(branch="main") == ["c1", "c3"]
    assert days(target="net*") == ["c1", "c2"]
    assert days(target="net") == []
    assert days(machine=other.run.machine[:6]) == ["c3"]
    assert days(machine="%") == []
    assert days(since=moment("2026-01-03")) == ["c2", "c3"]
    assert days(labels=(("a", "1"), ("b", "2"))) == ["c1"]
    assert days(labels=(("a", "1"), ("b", "1"))) == []


def test_a_run_is_found_by_the_beginning_of_its_name(store):
    with pytest.raises(InputError, match="No run") as error:
        store.find("latest")
    assert error.value.id == "run-unknown"
    made = [runs.run(day) for day in range(20)]
    for one in reversed(made):
        store.add(one)
    assert store.find("latest") == made[-1].run
    assert store.find(made[3].run.uuid[:13].upper()) == made[3].run
    with pytest.raises(InputError) as error:
        store.find("")
    assert error.value.id == "run-ambiguous"


def test_labels_of_one_run_are_changed_and_nothing_else(store):
    first, second = runs.run(1, labels={"a": "1", "b": "2"}), runs.run(2, labels={"a": "1"})
    store.add(first)
    store.add(second)
    figures = rows(store, metrics)
    store.label(first.run.uuid, {"a": "3", "k'": 'v"'}, removed=["b"])
    relabelled, other = store.entries()
    assert relabelled.run == msgspec.structs.replace(first.run, labels={"a": "3", "k'": 'v"'})
    assert codec.encode(relabelled.profile) == codec.encode(first.profile)
    assert other.run == second.run
    assert rows(store, metrics) == figures
    for uuid, removed, error_id in (
        (first.run.uuid, ["b"], "label-unknown"),
        ("unheard of", [], "run-unknown"),
    ):
        with pytest.raises(InputError) as error:
            store.label(uuid, {"c": "1"}, removed=removed)
        assert error.value.id == error_id
    assert store.runs() == [relabelled.run, second.run]


def test_what_is_removed_leaves_nothing(store):
    keep, gone = runs.run(1, labels={"a": "1"}), runs.run(2, labels={"a": "1"}, layers={"x": 1})
    store.add(gone)
    store.add(keep)
    assert store.remove([gone.run.uuid, "unheard of"]) == 1
    store.shrink()
    assert store.runs() == [keep.run]
    for table in (labels, metrics, layers):
        assert len({row[0] for row in rows(store, table)}) == 1
    with pytest.raises(InputError, match="holds no run"):
        store.profile(gone.run.uuid)


def test_times_sort_as_texts():
    east, west = moment("2026-01-02T01:00:00+02:00"), moment("2026-01-01T20:00:00-05:00")
    assert east == "2026-01-01T23:00:00.000000+00:00"
    assert east < west
    with pytest.raises(RecordError):
        moment("yesterday")
    with pytest.raises(RecordError, match="is not a time"):
        moment("0001-01-01T00:00:00+05:00")  # before the first year in UTC


def test_what_changes_times_makes_another_workload():
    known = runs.profile()
    same = runs.run(5, latency=1.0).run.workload
    assert entry(known, Facts()).run.workload == same
    target, environment = known.target, known.environment
    threads = runs.replace(environment.settings, threads=9)
    for changed in (
        {"target": runs.replace(target, precision="bf16")},
        {"target": runs.replace(target, batch=64)},
        {"target": runs.replace(target, inputs=())},
        {"environment": runs.replace(environment, settings=threads)},
    ):
        assert entry(runs.replace(known, **changed), Facts()).run.workload != same


def test_a_reader_sees_one_moment(store, location):
    """PostgreSQL would by itself show each statement another one."""
    store.add(runs.run(1))

    def read(connection):
        before = len(connection.execute(metrics.select()).all())
        with Store.open(location) as other:
            other.add(runs.run(2))
        return before, len(connection.execute(metrics.select()).all())

    before, after = store.read(read)
    assert before == after
    assert len(store.runs()) == 2
