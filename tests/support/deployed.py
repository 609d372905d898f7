"""Everything that the files of docs/deploy speak of: monitors with every series, and a history."""

import contextlib
import re

import msgspec
from tests.support import counts, servings
from tests.support import history_runs as runs
from tests.support.live_sites import history
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.analyze.history.alerts import Rule
from torchgauge.cli.main import main
from torchgauge.history.content import entry
from torchgauge.history.store import Store
from torchgauge.live.monitor_view import MonitorView
from torchgauge.live.routes import Site
from torchgauge.monitoring.folder import MonitorFolder
from torchgauge.records.run import Facts

DEPLOY = ROOT / "docs" / "deploy"
TOO_SLOW = Rule(name="slow", kind="threshold", metric="latency_median", limit=1e-3, unit="s")
# What a reader of metrics adds to the name of a distribution or a counter.
SUFFIXES = re.compile(r"_(bucket|count|sum)$")


def record(monitor):
    """Record an event of every series of a server, a model and a job."""
    route = {"route": "/predict", "method": "POST"}
    for series in ("request", "first_byte", "queue"):
        monitor.add(series, 0.02, **route)
    monitor.add("request", 0.3, **route)
    monitor.fail("request", "http 503", **route)
    monitor.add("latency", 0.01)
    monitor.fail("latency", "RuntimeError")
    monitor.add("layer", 0.001, layer="encoder.0")
    for series in ("batch", "tokens"):
        monitor.add(series, 8, "")
    monitor.flush()


def add_runs(file):
    """Make a history of a profile and a load."""
    profile = msgspec.structs.replace(runs.profile(0, target="lm.py:make"), cost=counts.cost())
    with Store.open(str(file)) as store:
        store.add(entry(profile, Facts()))
    servings.capacity_found().save(file.with_suffix(".json"))
    assert main(["history", "add", "--store", str(file), str(file.with_suffix(".json"))]) == 0


@contextlib.contextmanager
def site(folder, *, interval=1.0):
    """Yield a site with all of it, and the monitor."""
    add_runs(folder / "h.db")
    view = history(folder / "h.db", rules=[TOO_SLOW])
    reader = MonitorFolder(folder / "monitors")
    made = {"name": "api", "folder": folder / "monitors", "interval": interval}
    with tg.monitor(**made) as monitor:
        record(monitor)
        live = MonitorView("monitors", reader.windows, lambda _windows, _now: ("steady", []))
        live.update()
        yield Site(view, live, MonitorFolder(folder / "monitors").scraped), monitor
    view.close()


def names_in(text):
    """Return the names of torchgauge's metrics in expressions, without suffixes of readers."""
    return {SUFFIXES.sub("", name) for name in re.findall(r"\btorchgauge_[a-z_0-9]+", text)}
