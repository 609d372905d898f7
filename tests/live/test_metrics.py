"""What programs ask of `serve`: metrics of monitors, of the history and of alerts; its health."""

import json

import pytest
from tests.support import history_runs as runs
from tests.support.live_sites import ask, history, monitors, served

import torchgauge as tg
from torchgauge.analyze.history.alerts import Rule
from torchgauge.history.store import Store
from torchgauge.live.monitor_view import SILENT_AFTER
from torchgauge.live.routes import Site, respond
from torchgauge.monitoring.folder import MonitorFolder

TOKEN = "0123456789abcdef"
TOO_SLOW = Rule(name="slow", kind="threshold", metric="latency_median", limit=1e-3, unit="s")


def samples(body):
    """Return the value of each series of a page, by its name with labels."""
    client = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in client.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_what_a_job_without_a_server_recorded_is_scraped(tmp_path):
    with tg.monitor(name="batch", folder=tmp_path) as monitor:
        for value in (0.25, 0.5):
            monitor.add("step", value)
        monitor.fail("step", "Boom")
    with served(Site(None, None, MonitorFolder(tmp_path).scraped)) as server:
        status, headers, body = ask(server, "/metrics")
        assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
        page = samples(body)
        assert page["torchgauge_step_events_total", ("monitor", "batch")] == 3
        assert page["torchgauge_step_seconds_bucket", ("le", "0.25"), ("monitor", "batch")] == 1
        key = "torchgauge_step_errors_total", ("kind", "Boom"), ("monitor", "batch")
        assert page[key] == 1
        assert page["torchgauge_unreadable_files",] == 0
        (tmp_path / "x.monitor").write_bytes(b"damaged")
        with pytest.warns(RuntimeWarning):
            assert (
                samples(respond(server.site, "/metrics").body)["torchgauge_unreadable_files",] == 1
            )
        accept = "application/vnd.google.protobuf;encoding=delimited"
        _, headers, _ = ask(server, "/metrics", Accept=accept)
        assert "protobuf" in headers["Content-Type"]


def test_the_newest_runs_and_their_alerts_are_metrics(tmp_path):
    file = tmp_path / "h.db"
    with Store.open(str(file)) as store:
        store.add(runs.run(0, target="a"))
        store.add(runs.run(1, target="a"))
    view = history(file, rules=[TOO_SLOW])
    with served(Site(view, monitors(names=["chat"], looks=2))) as server:
        page = samples(ask(server, "/metrics")[2])
        target = ("target", "a")
        (latency,) = (
            v for k, v in page.items() if k[0] == "torchgauge_history_latency_median_seconds"
        )
        assert latency == pytest.approx(0.01)
        assert page["torchgauge_history_runs", target] == 2
        assert page["torchgauge_history_alerts", target] == 1
        assert page["torchgauge_history_run_time_seconds", target] > 1.6e9
        assert page["torchgauge_alerts", ("monitor", "chat"), ("series", "latency")] == 0
        assert page["torchgauge_serve_errors", ("part", "history")] == 0
        file.unlink()
        page = samples(ask(server, "/metrics")[2])
        assert page["torchgauge_serve_errors", ("part", "history")] == 1
        assert not [name for name, *_ in page if name.startswith("torchgauge_history")]
    view.close()


def test_what_cannot_be_judged_has_no_alerts_of_zero():
    site = Site(None, monitors(looks=1, judge=lambda _windows, _now: ("unknown", [])))
    with served(site) as server:
        names = {name for name, *_ in samples(ask(server, "/metrics")[2])}
    assert names == {"torchgauge_serve_errors"}


def test_a_folder_that_cannot_be_read_is_no_empty_page(tmp_path):
    folder = tmp_path / "monitors"
    folder.write_text("a file")
    errors = []
    with served(Site(None, None, MonitorFolder(folder).scraped), errors=errors) as server:
        status, _, body = ask(server, "/metrics")
    assert (status, json.loads(body)["id"]) == (500, "live-failed")
    assert "NotADirectoryError" in errors[0]


def test_health_is_told_to_anybody_and_metrics_to_who_has_the_token():
    site = Site(None, monitors(looks=1))
    with served(site, token=TOKEN) as server:
        for host in ("serve.monitoring.svc:7878", "localhost"):
            status, headers, body = ask(server, "/healthz", Host=host)
            assert (status, headers["Connection"], body) == (200, "close", b"ok\n")
            assert ask(server, "/metrics", Host=host)[0] in (401, 421)
            for token, status in ((TOKEN, 200), (TOKEN[::-1], 401), ("", 401)):
                answer = ask(server, "/metrics", Host=host, Authorization=f"Bearer {token}")
                # Of another name as well: a page of another site does not have the token.
                assert answer[0] == status or (status == 401 and answer[0] == 421)


def test_without_a_token_no_other_name_leads_to_metrics():
    with served(Site(None, monitors(looks=1))) as server:
        assert ask(server, "/metrics", Host="evil.example", Authorization="Bearer ")[0] == 421
        assert ask(server, "/healthz", Host="evil.example")[0] == 200


def test_a_look_that_does_not_end_is_bad_health():
    view = monitors(looks=1)
    with served(Site(None, view)) as server:
        assert ask(server, "/healthz")[0] == 200
        view._updated -= SILENT_AFTER + 1
        assert ask(server, "/healthz")[::2] == (503, b"stuck\n")
        view.update()
        assert ask(server, "/healthz")[0] == 200
