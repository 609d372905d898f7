"""The ASGI middleware: requests by route, errors, queue time, and the page for Prometheus."""

import asyncio
import threading
import time
import urllib.error
import urllib.request

import pytest

import torchgauge as tg
from torchgauge.integrate.asgi import MonitorMiddleware
from torchgauge.monitoring.background import background
from torchgauge.monitoring.folder import MonitorFolder


@pytest.fixture
def monitor(tmp_path):
    with tg.monitor(name="service", folder=tmp_path) as monitor:
        yield monitor


def request(app, path="/", headers=(), method="GET"):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    scope = {"type": "http", "path": path, "method": method, "headers": list(headers)}
    asyncio.run(app(scope, receive, send))
    return sent


def answer(status=200, headers=()):
    async def app(scope, receive, send):
        scope["route"] = type("Route", (), {"path": "/items/{item}"})
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"x"})

    return app


def windows(monitor, series):
    return [window for window in monitor.totals() if window.series == series]


def test_requests_are_counted_by_route_and_failures_by_kind(monitor):
    for status in (200, 404, 429, 503):
        app = MonitorMiddleware(answer(status), monitor=monitor)
        assert [message["type"] for message in request(app)] == [
            "http.response.start",
            "http.response.body",
        ]
    request(app, method="BREW")

    async def broken(scope, receive, send):
        raise KeyError

    with pytest.raises(KeyError):
        request(MonitorMiddleware(broken, monitor=monitor))

    async def silent(scope, receive, send):
        pass

    assert request(MonitorMiddleware(silent, monitor=monitor)) == []
    by_labels = {(w.labels["route"], w.labels["method"]): w for w in windows(monitor, "request")}
    window = by_labels["/items/{item}", "GET"]
    assert (window.count, window.histogram.count) == (4, 2)
    assert window.errors == {"http 429": 1, "http 503": 1}
    # An unknown path or method makes no series of its own.
    assert by_labels["other", "GET"].errors == {"KeyError": 1, "no response": 1}
    assert by_labels["/items/{item}", "other"].errors == {"http 503": 1}
    assert len(windows(monitor, "first_byte")) == 1


@pytest.mark.parametrize(
    ("headers", "answered", "expected"),
    [
        ([(b"x-request-start", b"t=%d")], [], 2.0),
        ([(b"X-Request-Start", b"%d000")], [], 2.0),
        ([(b"x-request-start", b"t=%d000000")], [], 2.0),
        ([], [(b"server-timing", b'db;dur=5, queue;desc="q";dur=12.5')], 0.0125),
        ([(b"x-request-start", b"t=%d")], [(b"server-timing", b"queue;dur=0")], 0.0),
        ([(b"x-request-start", b"soon")], [(b"server-timing", b"queue")], None),
        ([(b"x-request-start", b"12")], [], None),
        ([(b"x-request-start", b"9" * 400)], [(b"server-timing", b"queue;dur=1.2.3")], None),
    ],
)
def test_queue_time_is_what_proxy_or_application_report(monitor, headers, answered, expected):
    begun = int(time.time()) - 2
    headers = [(name, value % begun if b"%d" in value else value) for name, value in headers]
    request(MonitorMiddleware(answer(headers=answered), monitor=monitor), headers=headers)
    if expected is None:
        assert windows(monitor, "queue") == []
    else:
        (window,) = windows(monitor, "queue")
        assert window.histogram.sum == pytest.approx(expected, abs=0.0 if expected < 1 else 3.0)


def test_the_page_is_the_monitors_and_other_paths_are_the_applications(monitor):
    app = MonitorMiddleware(answer(), monitor=monitor)
    request(app)
    start, body = request(app, "/metrics")
    assert dict(start["headers"])[b"content-type"].startswith(b"text/plain; version=0.0.4")
    assert b'torchgauge_request_events_total{method="GET",monitor="service"' in body["body"]
    accept = (b"accept", b"application/vnd.google.protobuf;encoding=delimited")
    start, body = request(app, "/metrics", [accept])
    assert b"google.protobuf" in dict(start["headers"])[b"content-type"]
    for other in (MonitorMiddleware(answer(), monitor=monitor, metrics=""), app):
        path = "/metrics" if other is not app else "/metrics/"
        assert request(other, path)[1]["body"] == b"x"


def test_what_is_not_http_passes(monitor):
    passed = []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    asyncio.run(MonitorMiddleware(app, monitor=monitor)({"type": "websocket"}, None, None))
    assert passed == ["websocket"]


@pytest.mark.filterwarnings("ignore:Of the folder:RuntimeWarning")
def test_the_page_tells_how_many_files_it_lacks(monitor, tmp_path):
    app = MonitorMiddleware(answer(), monitor=monitor)
    request(app)
    for damaged in (0, 1):
        body = request(app, "/metrics")[1]["body"].decode()
        assert f'torchgauge_unreadable_files{{monitor="service"}} {damaged}.0' in body
        assert 'torchgauge_request_events_total{method="GET",monitor="service"' in body
        (tmp_path / "other.monitor").write_bytes(b"damaged")


async def living(scope, receive, send):
    if scope["type"] == "http":
        await answer()(scope, receive, send)
    for phase in ("startup", "shutdown") if scope["type"] == "lifespan" else ():
        assert (await receive())["type"] == f"lifespan.{phase}"
        await send({"type": f"lifespan.{phase}.complete"})


async def without_lifespan(scope, receive, send):
    if scope["type"] != "http":  # as Django
        raise ValueError(scope["type"])
    await answer()(scope, receive, send)


async def ignoring(scope, receive, send):
    if scope["type"] == "http":
        await answer()(scope, receive, send)


def stop(app, folder):
    """Start and shut down; return the server's messages, and the requests in files at each."""
    received, seen = ["startup", "shutdown"], []

    async def receive():
        return {"type": f"lifespan.{received.pop(0)}"}

    async def send(message):
        totals = MonitorFolder(folder).totals()
        counts = [window.count for window in totals if window.series == "request"]
        seen.append((message["type"], sum(counts)))

    asyncio.run(app({"type": "lifespan"}, receive, send))
    return seen


@pytest.mark.parametrize("inner", [living, without_lifespan, ignoring])
def test_what_was_recorded_is_written_before_the_shutdown_is_complete(inner, tmp_path):
    # The middleware's monitor, and another one of the process: of its model.
    with (
        tg.monitor(name="service", folder=tmp_path, interval=1000, window=1000) as monitor,
        tg.monitor(name="model", folder=tmp_path, interval=1000, window=1000) as other,
    ):
        while not (monitor._file and other._file):  # the only ticks have passed
            time.sleep(0.001)
        app = MonitorMiddleware(inner, monitor=monitor)
        for number in (2, 4):  # it goes on recording after the first
            request(app)
            other.add("request", 1.0)
            assert stop(app, tmp_path) == [
                ("lifespan.startup.complete", number - 2),
                ("lifespan.shutdown.complete", number),
            ]


def test_a_start_that_fails_is_the_server_s_to_report(monitor, tmp_path):
    async def app(scope, receive, send):
        await receive()
        raise KeyError("database")

    with pytest.raises(KeyError, match="database"):
        stop(MonitorMiddleware(app, monitor=monitor), tmp_path)


@pytest.mark.thorough
def test_a_fastapi_application_on_uvicorn(tmp_path):
    fastapi, uvicorn = pytest.importorskip("fastapi"), pytest.importorskip("uvicorn")
    monitor = tg.monitor(name="service", folder=tmp_path)
    app = fastapi.FastAPI()
    app.add_middleware(MonitorMiddleware, monitor=monitor)

    @app.get("/items/{item}")
    async def item(item: int):
        return {"twice": 2 // item}

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        for number in (1, 2, 3):
            assert urllib.request.urlopen(f"{address}/items/{number}").status == 200
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{address}/items/0")
        page = urllib.request.urlopen(f"{address}/metrics").read().decode()
    finally:
        server.should_exit = True
        thread.join()
        monitor.close()
    labels = 'method="GET",monitor="service",route="/items/{item}"'
    assert f"torchgauge_request_events_total{{{labels}}} 4.0" in page
    assert f'torchgauge_request_errors_total{{kind="ZeroDivisionError",{labels}}} 1.0' in page
    assert monitor not in background._monitors
