"""Windows of a history as they come."""

from tests.support.live_sites import Clock

from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.live.history_reader import HistoryReader
from torchgauge.live.stored_windows import BEFORE, LATE, StoredWindows
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.window import Window


def window(end, count):
    return Window(
        series="latency",
        labels={"monitor": "chat"},
        begin=end - 60,
        end=end,
        count=count,
        histogram=Histogram.from_values([0.01] * count),
    )


def test_windows_of_all_processes_are_one_and_come_once(tmp_path):
    clock = Clock(100_000.0)
    with Store.open(str(tmp_path / "h.db")) as store:
        reader = HistoryReader(store.display_name)
        stored = StoredWindows(reader, clock)
        assert not stored.has_any()
        add_windows(store, [window(clock.now - BEFORE - 1, 9), window(clock.now - 100, 2)], "a:1")
        add_windows(store, [window(clock.now - 100, 3), window(clock.now - 40, 4)], "b:2")
        assert stored.has_any()
        assert [(one.end, one.count) for one in stored()] == [(99_900, 5), (99_960, 4)]
        assert stored() == []
        add_windows(store, [window(clock.now, 1)], "a:1")
        assert stored() == []  # another process may still write its own
        clock.now += LATE + 1
        assert [(one.count, one.labels) for one in stored()] == [(1, {"monitor": "chat"})]
        reader.close()
