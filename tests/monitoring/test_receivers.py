"""Where windows go: a history, an OTLP endpoint, trackers; and endpoints that are dead."""

import gzip
import http.server
import os
import sys
import threading
import time
import types
from typing import ClassVar

import pytest
from tests.support.histograms import histogram_of

import torchgauge as tg
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows, read_windows
from torchgauge.monitoring import monitor as module
from torchgauge.monitoring.delivery import Batch, Delivery
from torchgauge.monitoring.problems import LONGEST, Problems
from torchgauge.monitoring.receivers import history, otlp
from torchgauge.monitoring.receivers.trackers import TrackerReceiver
from torchgauge.records.monitoring.window import Window, merged
from torchgauge.report.export import tensorboard
from torchgauge.report.export.mlflow import scalar_logger
from torchgauge.report.windows.families import window_scalars


def batch(values=(1.0, 4.0), **labels):
    window = Window(
        series="latency",
        labels={"monitor": "net", **labels},
        begin=0.0,
        end=2.0,
        count=len(values) + 2,
        histogram=histogram_of(values),
        errors={"ValueError": 2},
    )
    return Batch("net", "host:1", (window,), (window,))


def until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def test_windows_are_in_the_history(tmp_path):
    with tg.monitor(name="program", history=str(tmp_path / "h.db")) as monitor:
        for _ in range(2):
            monitor.add("read", 0.5)
            monitor.close_windows(time.time())
    assert monitor.status == ()
    with Store.open(str(tmp_path / "h.db"), create=False) as store:
        windows = read_windows(store, monitor="program", series="read")
    assert [window.count for window in windows] == [1, 1]
    assert merged(window.without("process") for window in windows)[0].histogram.sum == 1.0


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_a_receiver_that_fails_gets_the_windows_later_in_order():
    received, dead = [], True

    class Receiver:
        part, backlog = "endpoint", 3

        def receive(self, batch):
            if dead:
                raise ConnectionRefusedError
            received.append(batch.process)

    problems = Problems("m")
    delivery = Delivery(Receiver(), problems)
    delivery.send(batch()._replace(process="0"))
    until(problems.all)
    for number in range(1, 5):
        delivery.send(batch()._replace(process=str(number)))
    dead = False
    delivery.send(batch()._replace(process="5"))
    delivery.end()
    delivery.join(5)
    assert received[-3:] == ["3", "4", "5"]
    refused, lost = problems.all()
    assert (refused.part, refused.solved) == ("endpoint", True)
    assert (lost.part, lost.solved) == ("oldest windows for endpoint", False)
    assert lost.times == 6 - len(received)


def test_totals_that_give_way_to_newer_ones_are_no_loss():
    received, release = [], threading.Event()

    class Receiver:
        part, backlog = "endpoint", 1

        def receive(self, batch):
            release.wait(10)
            received.append(batch.process)

    problems = Problems("m")
    delivery = Delivery(Receiver(), problems)
    for number in range(9):
        delivery.send(batch()._replace(process=str(number)))
    release.set()
    delivery.end()
    delivery.join(5)
    assert received[-1] == "8"
    assert len(received) <= 3
    assert problems.all() == ()


def test_windows_are_handed_over_where_no_thread_can_begin(monkeypatch):
    """As Python 3.12 and later refuse it to what runs at exit."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    received = []
    monitor = tg.monitor(name="m", on_windows=received.append)
    monitor.add("read", 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        monitor.close()
    assert [len(windows) for windows in received] == [1]
    assert monitor.status == ()


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_windows_that_are_not_there_at_the_end_are_a_problem(monkeypatch):
    monkeypatch.setattr(module, "LAST_WAIT", 0.01)
    release = threading.Event()
    monitor = tg.monitor(name="m", on_windows=lambda windows: release.wait(10))
    monitor.add("read", 1.0)
    monitor.close()
    release.set()
    assert [problem.part for problem in monitor.status] == ["last windows for function"]


def test_a_function_that_closes_its_monitor_ends_it():
    closed = threading.Event()

    def close(windows):
        monitor.close()
        closed.set()

    monitor = tg.monitor(name="m", on_windows=close)
    monitor.add("read", 1.0)
    monitor.close_windows(time.time())
    assert closed.wait(10)
    assert monitor.status == ()


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host/v1 refused it",
        f"failed for 'https://{SECRET}@host/v1'",
        f"Max retries exceeded with url: /v1/metrics?tenant=1&api-key={SECRET} (Caused by X)",
        f"https://user:a@{SECRET}@host:80/v1?api-key={SECRET}: no",
    ],
)
@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_secrets_of_addresses_are_in_no_problem(text):
    problems = Problems("m")
    problems.add("endpoint", OSError(text))
    (problem,) = problems.all()
    assert SECRET not in problem.message
    assert "/v1" in problem.message


@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_a_message_has_a_length():
    problems = Problems("m")
    begin = time.monotonic()
    problems.add("endpoint", OSError("?" * 1_000_000))
    assert time.monotonic() - begin < 5
    assert len(problems.all()[0].message) == LONGEST


@pytest.mark.thorough
def test_a_forked_process_has_a_connection_and_a_writer_of_its_own(monkeypatch, tmp_path):
    """By stand-ins of both libraries: what is inherited is used by the parent alone."""

    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")

    class Made:
        def __init__(self, *arguments, **options):
            self.process = os.getpid()

        def export(self, metrics, timeout_millis):
            assert self.process == os.getpid()
            return types.SimpleNamespace(name="SUCCESS")

        def flush(self):
            assert self.process == os.getpid()

    monkeypatch.setattr(exporter, "OTLPMetricExporter", Made)
    monkeypatch.setattr(tensorboard, "_writer_class", lambda: Made)
    monkeypatch.setattr(tensorboard, "_add", lambda *arguments: None)
    monkeypatch.setattr(otlp, "otlp_metrics", lambda *arguments, **options: None)
    receivers = [otlp.OtlpReceiver("http://127.0.0.1:9/"), TrackerReceiver(tmp_path)]
    for receiver in receivers:
        receiver.receive(batch())
    assert in_fork(lambda: [receiver.receive(batch()) for receiver in receivers]) == ""


def in_fork(work):
    """Return what a forked process raises."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except (AssertionError, tg.TorchgaugeError) as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(status)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as file:
        return file.read() or status * "it failed"


@pytest.mark.thorough
def test_a_process_that_is_forked_while_a_history_is_open_leaves_it_alone(monkeypatch, tmp_path):
    """SQLite would take the parent's locks for its own, and damage the file."""
    monkeypatch.setattr(history, "LONGEST_WAIT", 0.05)
    receiver = history.HistoryReceiver(str(tmp_path / "h.db"))
    receiver.receive(batch())
    begun, release = threading.Event(), threading.Event()

    def add(*arguments):
        begun.set()
        release.wait(10)

    with monkeypatch.context() as patch:
        patch.setattr(history, "add_windows", add)
        thread = threading.Thread(target=receiver.receive, args=(batch(),))
        thread.start()
        begun.wait(10)
        assert "would damage it" in in_fork(lambda: receiver.receive(batch()))
        patch.setattr(history, "LONGEST_WAIT", 10)
        patch.setattr(history, "add_windows", add_windows)
        threading.Timer(0.05, release.set).start()
        # The fork waits until it is closed.
        forked = batch()._replace(process="host:2")
        assert in_fork(lambda: receiver.receive(forked)) == ""
        thread.join()
    with Store.open(str(tmp_path / "h.db"), create=False) as store:
        assert [window.labels["process"] for window in read_windows(store)] == ["host:1", "host:2"]


def test_a_receiver_that_hangs_holds_up_neither_calls_nor_others():
    release, received = threading.Event(), []
    monitor = tg.monitor(name="m", on_windows=lambda windows: release.wait(10))
    call = monitor(received.append)
    begin = time.monotonic()
    for number in range(3):
        call(number)
        monitor.close_windows(time.time())
    assert time.monotonic() - begin < 5
    release.set()
    monitor.close()
    assert received == [0, 1, 2]


class Collector(http.server.BaseHTTPRequestHandler):
    requests: ClassVar = []

    def do_POST(self):
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )

        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.mark.thorough
@pytest.mark.parametrize("gen_ai", [False, True])
def test_an_otlp_endpoint_gets_exact_sums(gen_ai):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    Collector.requests = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1/metrics"
        with tg.monitor(name="net", otlp=url, gen_ai=gen_ai) as monitor:
            for value in (0.25, 0.5, 3.0):
                monitor.add("request", value, route="/")
                monitor.add("tokens", 7.0, "")
            monitor.fail("request", "http 500", route="/")
            windows = {window.series: window for window in monitor.totals()}
        assert monitor.status == ()
    finally:
        server.shutdown()
        server.server_close()
    (resource,) = Collector.requests[-1].resource_metrics
    facts = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert facts["service.name"] == "net"
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    name = "gen_ai.server.request.duration" if gen_ai else "torchgauge.request"
    (point,) = metrics[name].exponential_histogram.data_points
    assert (point.count, point.sum, point.scale) == (3, 3.75, 5)
    assert (point.min, point.max) == (0.25, 3.0)
    assert point.positive.offset == windows["request"].histogram.offset
    assert tuple(point.positive.bucket_counts) == windows["request"].histogram.counts
    assert metrics["torchgauge.request.events"].sum.data_points[0].as_int == 4
    (error,) = metrics["torchgauge.request.errors"].sum.data_points
    attributes = {pair.key: pair.value.string_value for pair in error.attributes}
    assert (error.as_int, attributes["error.type"]) == (1, "http 500")
    tokens = metrics["gen_ai.client.token.usage" if gen_ai else "torchgauge.tokens"]
    assert tokens.exponential_histogram.data_points[0].sum == 21
    if gen_ai:
        assert attributes["gen_ai.request.model"] == "net"
        assert tokens.unit == "{token}"


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The monitor:RuntimeWarning")
def test_a_dead_otlp_endpoint_is_a_problem_and_no_more(monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    monkeypatch.setattr(otlp, "TIMEOUT", 0.3)
    address = f"http://user:{SECRET}@127.0.0.1:9/v1/metrics?api-key={SECRET}"
    monitor = tg.monitor(name="net", otlp=address)
    monitor.add("request", 1.0)
    monitor.close_windows(time.time())
    until(lambda: monitor.status)
    monitor.close()
    assert {problem.part for problem in monitor.status} == {"otlp"}
    assert "The OTLP endpoint http://127.0.0.1:9/v1/metrics did not" in monitor.status[0].message


def test_scalars_by_hand():
    scalars = window_scalars(batch(layer="a b#c").windows)
    group = "torchgauge/latency/layer_a b_c"
    assert scalars == {
        f"{group}/p50_seconds": pytest.approx(1.0, rel=0.011),
        f"{group}/p90_seconds": 4.0,
        f"{group}/p99_seconds": 4.0,
        f"{group}/mean_seconds": 2.5,
        f"{group}/per_second": 2.0,
        f"{group}/error_share": 0.5,
    }


def test_names_that_mlflow_would_refuse_are_cut_and_stay_apart(monkeypatch):
    logged = []
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="7"))
    mlflow = types.SimpleNamespace(
        active_run=lambda: run, log_metrics=lambda values, step, run_id: logged.append(values)
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    names = [f"torchgauge/layer/layer={'x' * 300}{end}/p50_seconds" for end in "ab"]
    scalar_logger()({"torchgauge/a/p50_seconds": 1.0, **dict.fromkeys(names, 2.0)}, 7.0)
    (values,) = logged
    assert (len(values), max(map(len, values)) <= 250) == (3, True)  # MLflow's limit
    assert all(name.endswith("/p50_seconds") for name in values)


def test_the_run_that_was_active_gets_the_scalars(monkeypatch):
    """Both libraries' run is found in the thread that makes the monitor, by stand-ins of them."""
    logged = []
    run = types.SimpleNamespace(
        info=types.SimpleNamespace(run_id="7"), log=lambda values: logged.append(("wandb", values))
    )
    wandb = types.SimpleNamespace(run=run)
    mlflow = types.SimpleNamespace(
        active_run=lambda: run,
        log_metrics=lambda values, step, run_id: logged.append((run_id, values)),
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    with tg.monitor(name="m", trackers=["wandb", "mlflow"]) as monitor:
        wandb.run, mlflow.active_run = None, lambda: None
        monitor.add("read", 2.0)
    values = dict(logged)
    assert values["7"]["torchgauge/read/mean_seconds"] == 2.0
    assert values["wandb"]["torchgauge/read/mean_seconds"] == 2.0
    for tracker in ("wandb", "mlflow"):
        with pytest.raises(tg.InputError) as error:
            tg.monitor(name="m", trackers=[tracker])
        assert error.value.id == "no-run"


def test_tensorboard_reads_the_scalars(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tg.monitor(name="m", trackers=[tmp_path / "runs"]) as monitor:
        monitor.add("read", 2.0)
    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    assert events.Scalars("torchgauge/read/mean_seconds")[0].value == 2.0
