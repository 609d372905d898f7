"""The live page over a history made by hand and monitors that are made up, served for a test."""

import contextlib
import http.client
import threading
from concurrent.futures import Executor, Future

import numpy as np
from tests.support.histograms import histogram_of

from torchgauge.errors import TorchgaugeError
from torchgauge.live.history_reader import DEFAULT_RULES, HistoryReader
from torchgauge.live.history_view import HistoryView
from torchgauge.live.monitor_view import LOOK, MonitorView
from torchgauge.live.routes import Site
from torchgauge.live.server import LiveServer
from torchgauge.records.monitoring.window import Window


class Immediate(Executor):
    """Runs what is submitted at once."""

    def submit(self, function, /, *arguments, **options):
        future = Future()
        try:
            future.set_result(function(*arguments, **options))
        except (ArithmeticError, TorchgaugeError) as error:
            future.set_exception(error)
        return future


class Clock:
    def __init__(self, now=1_790_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


def windows(now, look, names, *, labels=None, error="RuntimeError"):
    """Return windows of a look as monitors would leave them: latencies that differ by name."""
    draw = np.random.default_rng(look)
    made = []
    for number, name in enumerate(names):
        values = 0.004 * (1 + number % 7) * draw.lognormal(0, 0.25, 200)
        values = values.tolist()
        made.append(
            Window(
                series="latency",
                labels={"monitor": name, **(labels or {})},
                begin=now - LOOK,
                end=now,
                count=204,
                errors={error: 4} if number % 5 == 0 else {},
                histogram=histogram_of(values),
            )
        )
    made.append(
        Window(
            series="layer",
            labels={"monitor": names[0], "layer": "encoder.0"},
            begin=now - LOOK,
            end=now,
            count=2,
            histogram=histogram_of([0.001, 0.003]),
        )
    )
    return made


def monitors(names=("chat",), looks=30, *, clock=None, judge=None, **made) -> MonitorView:
    """Return a view that has looked so often, the last time now."""
    clock = clock or Clock()
    clock.now -= looks * LOOK
    look = 0

    def read():
        nonlocal look
        look += 1
        return windows(clock.now, look, names, **made)

    view = MonitorView("monitors", read, judge or (lambda _windows, _now: ("steady", [])), clock)
    for _ in range(looks):
        clock.now += LOOK
        view.update()
    return view


def history(location, rules=DEFAULT_RULES, executor=None) -> HistoryView:
    return HistoryView(HistoryReader(str(location)), executor or Immediate(), rules)


@contextlib.contextmanager
def served(site: Site, *, host="127.0.0.1", port=0, token=None, errors=None):
    """Serve a site in a thread; what the server reports is appended to `errors`."""
    reported = [] if errors is None else errors
    with LiveServer(host, port, site, token, reported.append) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path, method="GET", body=None, **headers):
    """Return the status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
    with contextlib.closing(connection):
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
