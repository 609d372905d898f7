"""A real Prometheus scrapes a real server that is monitored, and has every request afterwards.

    python benchmarks/monitor_prometheus.py FOLDER [--minutes 10] [--workers 2]

FOLDER has `prometheus` and `promtool` (Debian's package, unpacked: `usr/bin`). An application
on uvicorn's worker processes answers about 20 requests a second, one in 50 with an error; one
worker is killed halfway, which uvicorn replaces. Prometheus scrapes it every 5 s, twice: with
native histograms (protobuf) and without. At the end it must have had no failed scrape, count what
was sent, and its quantile must be that of the client; `promtool check metrics` must accept it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

APPLICATION = """
import os, random, time
import fastapi, torch
import torchgauge as tg
from torchgauge.integrate.asgi import MonitorMiddleware

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).eval()
monitor = tg.monitor(model, name="service")
app = fastapi.FastAPI()
app.add_middleware(MonitorMiddleware, monitor=monitor)

@app.get("/predict/{number}")
def predict(number: int):
    if number % 50 == 0:
        raise fastapi.HTTPException(503)
    time.sleep(random.lognormvariate(-5.5, 0.5))
    with torch.inference_mode():
        return model(torch.ones(1, 64)).sum().item()

@app.get("/process")
def process():
    return os.getpid()
"""
CONFIGURATION = """
global: {{scrape_interval: 5s}}
scrape_configs:
  - job_name: service
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
QUERIES = {
    "failed scrapes": "count_over_time(up[1h]) - sum_over_time(up[1h])",
    "scrapes": "count_over_time(up[1h])",
    "requests": 'sum(torchgauge_request_events_total{route="/predict/{number}"})',
    "errors": "sum(torchgauge_request_errors_total)",
    "model calls": "sum(torchgauge_latency_events_total)",
}
NATIVE = {
    "timed": 'histogram_count(sum(torchgauge_request_seconds{route="/predict/{number}"}))',
    "sum of seconds": 'histogram_sum(sum(torchgauge_request_seconds{route="/predict/{number}"}))',
    "p50": 'histogram_quantile(0.5, sum(torchgauge_request_seconds{route="/predict/{number}"}))',
    "p99": 'histogram_quantile(0.99, sum(torchgauge_request_seconds{route="/predict/{number}"}))',
}
CLASSIC = {
    "timed": 'sum(torchgauge_request_seconds_count{route="/predict/{number}"})',
    "sum of seconds": 'sum(torchgauge_request_seconds_sum{route="/predict/{number}"})',
    "p50": "histogram_quantile(0.5, sum by (le) "
    '(torchgauge_request_seconds_bucket{route="/predict/{number}"}))',
    "p99": "histogram_quantile(0.99, sum by (le) "
    '(torchgauge_request_seconds_bucket{route="/predict/{number}"}))',
}


def free_port() -> int:
    """Return a port of the loopback that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(*command: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def get(url: str) -> bytes:
    """Return the body of a page."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return bytes(response.read())


def until_answered(url: str) -> None:
    """Wait until a server answers."""
    for _ in range(300):
        with contextlib.suppress(OSError):
            get(url)
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def asked(port: int, query: str) -> float:
    """Return the number that Prometheus answers a query with; NaN for nothing."""
    parameters = urllib.parse.urlencode({"query": query})
    answer = json.loads(get(f"http://127.0.0.1:{port}/api/v1/query?{parameters}"))
    results = answer["data"]["result"]
    return float(results[0]["value"][1]) if results else math.nan


def load(base: str, seconds: float) -> tuple[int, int, list[float]]:
    """Send requests, kill a worker halfway; return how many were answered, how many failed."""
    sent, failed, killed, durations = 0, 0, False, []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        if not killed and end - now < seconds / 2:
            killed = True
            time.sleep(2.0)  # its file has all that it answered
            os.kill(int(get(f"{base}/process")), signal.SIGKILL)
            time.sleep(1.0)
        try:
            get(f"{base}/predict/{sent + 1}")
            durations.append(time.monotonic() - now)
        except urllib.error.HTTPError:
            failed += 1
        except OSError:  # by the worker that was killed
            continue
        sent += 1
        time.sleep(0.04)
    return sent, failed, durations


def run(programs: Path, minutes: float, workers: int, folder: Path) -> None:
    """Start everything, and print what Prometheus has at the end beside what was sent."""
    (folder / "application.py").write_text(APPLICATION)
    port, native_port, classic_port = free_port(), free_port(), free_port()
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(port=port))
    environment = os.environ | {"TORCHGAUGE_STATE": str(folder)}
    uvicorn = ("-m", "uvicorn", "application:app", "--port", str(port), "--log-level", "critical")
    base = f"http://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        command = (sys.executable, *uvicorn, "--workers", str(workers))
        stack.enter_context(running(*command, cwd=folder, env=environment))
        until_answered(f"{base}/metrics")
        for name, own_port in (("native", native_port), ("classic", classic_port)):
            command = (
                *(str(programs / "prometheus"), f"--config.file={folder}/prometheus.yml"),
                *(f"--storage.tsdb.path={folder}/{name}", "--log.level=error"),
                f"--web.listen-address=127.0.0.1:{own_port}",
                *(["--enable-feature=native-histograms"] if name == "native" else []),
            )
            stack.enter_context(running(*command))
            until_answered(f"http://127.0.0.1:{own_port}/-/ready")
        sent, failed, durations = load(base, minutes * 60)
        time.sleep(12)  # two more scrapes
        print(f"sent {sent:,} requests, {failed} of them failed; by the client p50 "
              f"{sorted(durations)[len(durations) // 2] * 1e3:.2f} ms")  # fmt: skip
        for name, own_port, queries in (
            ("native", native_port, QUERIES | NATIVE),
            ("classic", classic_port, QUERIES | CLASSIC),
        ):
            for label, query in queries.items():
                print(f"  {name:8} {label:16} {asked(own_port, query):.6g}")
        page = get(f"{base}/metrics")
    checked = subprocess.run([programs / "promtool", "check", "metrics"], input=page, check=False)
    print(f"promtool check metrics: {'accepted' if not checked.returncode else 'REFUSED'}")
    print(f"{len(list((folder / 'monitors').iterdir()))} files of processes remain")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(options.folder.absolute(), options.minutes, options.workers, Path(folder))


if __name__ == "__main__":
    main()
