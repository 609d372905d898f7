"""Rules on levels and growth, judged on the live page by the windows of a history."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import msgspec
import pytest
from tests.support.histograms import histogram_of

from torchgauge.analyze.history.alerts import Rule
from torchgauge.analyze.monitoring.window_alerts import WindowRule
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows
from torchgauge.live.history_reader import INTERVAL, HistoryReader, StoredJudgements
from torchgauge.live.monitor_view import judge
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
            count=60, histogram=histogram_of(values),
        )  # fmt: skip


@pytest.mark.thorough
def test_a_level_that_rose_is_an_alert_of_its_live_series(tmp_path):
    with Store.open(str(tmp_path / "h.db")) as store:
        add_windows(store, windows(), "host:1")
    reader, times = HistoryReader(str(tmp_path / "h.db")), [NOW]
    rule, other = WindowRule("slower", "level"), WindowRule("other", "level", monitor="x")
    (live,) = list(windows())[-1:]
    with ThreadPoolExecutor(1) as executor:
        stored = StoredJudgements(reader, [rule, other], executor, lambda: times[0])
        judged = judge((), (), stored)
        judged([live], NOW)  # which begins to look
        executor.submit(int).result()
        kind, texts = judged([live], NOW)
        assert kind == "alert"
        assert texts[0].startswith("slower: level changed by +2")
        assert len(texts) == 1
        assert judged([msgspec.structs.replace(live, labels={"monitor": "y"})], NOW) == (
            "unknown",
            [],
        )
        times[0] += 2 * INTERVAL + 7200
        judged([live], NOW)
        executor.submit(int).result()
        assert judged([live], NOW) == ("unknown", [])  # it fell silent
    reader.close()


def memory(process, kind, hour, size):
    """Return the readings of an hour before NOW."""
    end = NOW - hour * 3600
    return Window(
        series="memory", unit="B", labels={"monitor": "api", "kind": kind, "process": process},
        begin=end - 60, end=end, count=60, histogram=histogram_of([size] * 60), last=size,
    )  # fmt: skip


def test_memory_that_grows_is_an_alert_of_its_live_series(tmp_path):
    rule = Rule("leak", "growth", "monitor_memory_p50", 0.2, "ratio", over=timedelta(days=2))
    other = Rule("other", "growth", "monitor_memory_p50", 0.2, "ratio", target="x*")
    with Store.open(str(tmp_path / "h.db")) as store:
        for hour in range(60):
            readings = [memory(f"host:{n}", "resident", hour, 2e9 - hour * 2e7) for n in (1, 2)]
            add_windows(store, [*readings, memory("host:1", "cuda:0", hour, 1e9)], "host:1")
    resident, cuda = memory("host:9", "resident", 0, 2e9), memory("host:9", "cuda:0", 0, 1e9)
    reader = HistoryReader(str(tmp_path / "h.db"))
    with ThreadPoolExecutor(1) as executor:
        judged = judge((), (), StoredJudgements(reader, [rule, other], executor, lambda: NOW))
        judged([resident], NOW)
        executor.submit(int).result()
        kind, (text,) = judged([resident], NOW)
        assert kind == "alert"
        assert text.startswith("leak: grew by ")
        assert "in 2 days" in text
        assert judged([cuda], NOW) == ("steady", [])
        without = judge((), (), StoredJudgements(None, [rule], executor))
        assert without([resident], NOW) == ("unknown", [])
    reader.close()
