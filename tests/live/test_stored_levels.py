"""Rules on levels, judged on the live page by the windows of a history."""

from concurrent.futures import ThreadPoolExecutor

from torchgauge.analyze.monitoring.window_alerts import WindowRule
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.live.history_reader import HistoryReader
from torchgauge.live.stored_levels import INTERVAL, StoredLevels
from torchgauge.live.window_judgements import judge
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.window import Window

DAYS, MINUTES, NOW = 7, 10, 1_700_000_000.0 // 600 * 600


def windows():
    """A week of windows of ten minutes, slower by a quarter for the last six hours."""
    for number in range(DAYS * 24 * 6):
        end = NOW - (DAYS * 24 * 6 - 1 - number) * MINUTES * 60
        base = 0.1 * (1.25 if end > NOW - 6 * 3600 else 1.0)
        values = [base * 1.02 ** ((number * 7 + k * 5) % 11 - 5) for k in range(60)]
        yield Window(
            series="latency", labels={"monitor": "api"}, begin=end - MINUTES * 60, end=end,
            count=60, histogram=Histogram.from_values(values),
        )  # fmt: skip


def test_a_level_that_rose_is_an_alert_of_its_live_series(tmp_path):
    with Store.open(str(tmp_path / "h.db")) as store:
        add_windows(store, windows(), "host:1")
    reader, times = HistoryReader(str(tmp_path / "h.db")), [NOW]
    rule, other = WindowRule("slower", "level"), WindowRule("other", "level", monitor="x")
    (live,) = list(windows())[-1:]
    with ThreadPoolExecutor(1) as executor:
        levels = StoredLevels(reader, [rule, other], executor, lambda: times[0])
        judged = judge((), (), levels)
        judged([live], NOW)  # which begins to look
        executor.submit(int).result()
        kind, texts = judged([live], NOW)
        assert kind == "alert"
        assert texts[0].startswith("slower: level changed by +2")
        assert len(texts) == 1
        assert judged([live.with_labels(monitor="y")], NOW) == ("unknown", [])
        times[0] += 2 * INTERVAL + 7200
        judged([live], NOW)
        executor.submit(int).result()
        assert judged([live], NOW) == ("unknown", [])  # it fell silent
    reader.close()
