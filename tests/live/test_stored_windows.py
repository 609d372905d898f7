"""Windows of a history as they come."""

from tests.support.histograms import histogram_of
from tests.support.live_sites import Clock

from torchgauge.analyze.monitoring.window_alerts import LONG
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.live.history_reader import BEFORE, LATE, HistoryReader, StoredWindows
from torchgauge.records.monitoring.window import Window


def window(end, count):
    return Window(
        series="latency",
        labels={"monitor": "chat"},
        begin=end - 60,
        end=end,
        count=count,
        histogram=histogram_of([0.01] * count),
    )


def test_windows_of_all_processes_come_once(tmp_path):
    clock = Clock(100_000.0)
    with Store.open(str(tmp_path / "h.db")) as store:
        reader = HistoryReader(store.display_name)
        stored = StoredWindows(reader, clock)
        assert not stored.has_any()
        add_windows(store, [window(clock.now - BEFORE - 1, 9), window(clock.now - 100, 2)], "a:1")
        add_windows(store, [window(clock.now - 100, 3), window(clock.now - 40, 4)], "b:2")
        assert stored.has_any()
        ends = [(one.end, one.count) for one in stored()]
        assert ends == [(99_900, 2), (99_900, 3), (99_960, 4)]
        assert stored() == []
        add_windows(store, [window(clock.now, 1)], "a:1")
        assert stored() == []  # another process may still write its own
        clock.now += LATE + 1
        assert [(one.count, one.labels) for one in stored()] == [(1, {"monitor": "chat"})]
        reader.close()


def test_windows_that_come_late_are_there_within_a_minute_and_once(tmp_path):
    """A host's clock is half an hour behind, and it could not write before."""
    clock = Clock(100_000.0)
    with Store.open(str(tmp_path / "h.db")) as store:
        reader = HistoryReader(store.display_name)
        stored = StoredWindows(reader, clock)
        add_windows(store, [window(clock.now - LATE, 1)], "a:1")
        assert [one.count for one in stored()] == [1]
        late = [window(clock.now - 1800, 2), window(clock.now - LONG - 200, 9)]
        add_windows(store, late, "b:2")
        counts = []
        for _ in range(30):
            clock.now += 5
            counts += [one.count for one in stored()]
        assert counts == [2]
        assert len(stored._ends) == 2
        clock.now += LONG
        assert stored() == []
        assert stored._ends == {}
        reader.close()
