"""What load reports beside what is true: of queues, of a pause, and of a stall.

    python benchmarks/load_truths.py [--requests 2000] [--seconds 20]

Queues: constant and exponential service times at two loads, served by `load_server.c`, which has
the last core to itself; each request's latency beside Lindley's recursion on the same schedule, and
the client's own lateness, which is in the error. A pause: 50 requests/s at a server that stops for
2 s; mean, p90 and p95 beside the server's own log, and beside those the figures of clients that
wait for their answers: hey, wrk (where they are installed) and a loop of Python's http.client. A
stall: first tokens of a language model's server that stops for 3 s, beside its log.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torchgauge as tg  # noqa: E402 - the folder of the tests comes first

Floats = NDArray[np.float64]
SERVICE = 0.004
PAUSE_RATE = 50


def compare_queues(count: int) -> None:
    """Print the errors of single requests, and of the percentiles."""
    from benchmarks.load_client import cheap_server
    from tests.support.simulated_loads import lindley

    cores = os.sched_getaffinity(0)
    for kind in ("constant", "exponential"):
        for utilization in (0.5, 0.8):
            services = np.full(count, SERVICE)
            if kind == "exponential":
                services = np.random.default_rng(5).exponential(SERVICE, count)
            with tempfile.TemporaryDirectory() as folder, cheap_server("queue") as url:
                os.sched_setaffinity(0, cores - {max(cores)} or cores)
                bodies = Path(folder, "bodies.jsonl")
                bodies.write_text("".join(json.dumps({"service": s}) + "\n" for s in services))
                serving = tg.measure_serving(
                    url, rate=utilization / SERVICE, requests=count, body=bodies, seed=3
                )
            os.sched_setaffinity(0, cores)
            requests = serving.levels[0].requests
            scheduled, last = np.array(requests.scheduled), np.array(requests.last, dtype=float)
            truth = lindley(scheduled, services[: len(scheduled)]) - scheduled
            error = last - scheduled - truth
            middle, high = np.quantile(np.abs(error), (0.5, 0.99)) * 1e3
            late = np.quantile(np.array(requests.sent, dtype=float) - scheduled, 0.99) * 1e3
            p99 = np.quantile(last - scheduled, 0.99) / np.quantile(truth, 0.99) - 1
            print(
                f"{kind:11} service, load {utilization:g}: error of a request p50 {middle:.2f}, "
                f"p99 {high:.2f} ms (late p99 {late:.2f} ms); of the p99 {100 * p99:+.1f} %"
            )


def row(name: str, values: Floats | None, truth: Floats | None = None, **figures: float) -> str:
    """Return a line of mean, p90 and p95 in ms, with their errors where the truth is known."""
    if values is not None:
        figures = {
            "mean": values.mean(), "p90": np.quantile(values, 0.9), "p95": np.quantile(values, 0.95)
        }  # fmt: skip
    texts = [f"{metric} {1e3 * value:8.1f} ms" for metric, value in figures.items()]
    if truth is not None:
        true_values = (truth.mean(), np.quantile(truth, 0.9), np.quantile(truth, 0.95))
        errors = (100 * (a / b - 1) for a, b in zip(figures.values(), true_values, strict=True))
        texts = [f"{text} ({error:+.2f} %)" for text, error in zip(texts, errors, strict=True)]
    return f"{name:26} {', '.join(texts)}"


def closed_loop(server: str, seconds: float) -> Floats:
    """Return the latencies that one user measures who sends at most `PAUSE_RATE` a second."""
    connection = http.client.HTTPConnection(server.removeprefix("http://"), timeout=60)
    latencies = []
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        connection.request("GET", "/")
        connection.getresponse().read()
        latencies.append(time.monotonic() - begin)
        time.sleep(max(1 / PAUSE_RATE - latencies[-1], 0))
    return np.array(latencies)


def hey(server: str, seconds: float) -> dict[str, float]:
    """Return what hey reports of one user of the same rate."""
    command = ["hey", "-z", f"{seconds:g}s", "-c", "1", "-q", str(PAUSE_RATE), server + "/"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    average = re.search(r"Average:\s+([\d.]+)", text)
    parts = dict(re.findall(r"(\d+)%+ in ([\d.]+) secs", text))
    return {
        "mean": float(average[1]) if average else float("nan"),
        "p90": float(parts["90"]), "p95": float(parts["95"]),
    }  # fmt: skip


def wrk(server: str, seconds: float) -> dict[str, float]:
    """Return what wrk reports of one user; it has no p95 and no rate."""
    command = ["wrk", "-t1", "-c1", f"-d{seconds:g}s", "--timeout", "60s", "--latency", server]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    average = re.search(r"Latency\s+([\d.]+)(us|ms|s)", text)
    high = re.search(r"90%\s+([\d.]+)(us|ms|s)", text)
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    pairs = (("mean", average), ("p90", high))
    return {name: float(found[1]) * scale[found[2]] for name, found in pairs if found}


def compare_pause(seconds: float) -> None:
    """Print the figures of each client at a server that pauses."""
    from tests.support.servers.running import running

    pause = {"service": 0.002, "pause_at": seconds / 2, "pause": 2}
    with running("fifo_server", **pause) as server:
        serving = tg.measure_serving(
            server.address, rate=PAUSE_RATE, arrivals="constant", duration=seconds
        )
        truth = np.array([entry["finished"] - entry["arrived"] for entry in server.log()])
    requests = serving.levels[0].requests
    ours = np.array(requests.last, dtype=float) - np.array(requests.scheduled)
    print(row("pause of 2 s: server's log", truth))
    print(row("  torchgauge", ours, truth))
    with running("fifo_server", **pause) as server:
        print(row("  http.client, one user", closed_loop(server.address, seconds), truth))
    for client in (hey, wrk):
        if shutil.which(client.__name__):
            with running("fifo_server", **pause) as server:
                print(
                    row(f"  {client.__name__}, one user", None, **client(server.address, seconds))
                )


def compare_stall(seconds: float) -> None:
    """Print the times to first tokens at a server that stalls."""
    from tests.support.servers.running import running

    options = {"ttft": 0.05, "itl": 0.01, "lanes": 16, "stall_at": 6, "stall": 3}
    with running("language_server", **options) as server:
        serving = tg.measure_serving(
            f"{server.address}/v1/chat/completions", api="openai-chat", tokens=(32, 16), rate=10,
            duration=seconds, seed=1,
        )  # fmt: skip
        log = server.log()
    requests = serving.levels[0].requests
    truth = np.array([entry["first"] - entry["arrived"] for entry in log])
    print(row("stall of 3 s: server's log", truth))
    ttft = np.array(requests.first, dtype=float) - np.array(requests.scheduled)
    print(row("  torchgauge, from due", ttft, truth))
    sent = np.array(requests.sent, dtype=float)
    print(row("  torchgauge, from sent", np.array(requests.first, dtype=float) - sent, truth))


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    compare_queues(options.requests)
    compare_pause(options.seconds)
    compare_stall(options.seconds)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
