"""Real servers, and a plain loop, that end by SIGTERM: what their monitors have recorded then."""

import http.client
import signal
import socket
import subprocess
import sys
import time

import pytest

from torchgauge.monitoring.folder import MonitorFolder

APP = """
import torchgauge as tg
from torchgauge.integrate.asgi import MonitorMiddleware

async def answer(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})

app = MonitorMiddleware(answer, monitor=tg.monitor(name="stops", folder="monitors"))
"""
# Its calls are counted in a file that the kernel keeps, as each one ends.
LOOP = """
import os, time
import torchgauge as tg

call = tg.monitor(name="stops", folder="monitors")(lambda: None)
log = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    call()
    os.write(log, b"%f\\n" % time.time())
    time.sleep(0.001)
"""
SERVERS = {
    "uvicorn": ("uvicorn", "app:app", "--port"),
    "workers": ("uvicorn", "app:app", "--workers", "2", "--port"),
    "reload": ("uvicorn", "app:app", "--reload", "--port"),
    "gunicorn": ("gunicorn", "app:app", "-k", "uvicorn.workers.UvicornWorker", "-w2", "-b"),
    "hypercorn": ("hypercorn", "app:app", "-b"),
}


def recorded(folder, series):
    totals = MonitorFolder(folder / "monitors").totals()
    return sum(window.count for window in totals if window.series == series)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answered(port, number, process):
    """Ask for answers, one connection each, from when the server is there; return how many."""
    answers, deadline = 0, time.monotonic() + 30
    while answers < number and time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/")
            answers += connection.getresponse().status == 200
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    return answers


@pytest.mark.thorough
@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_sigterm_ends_loses_no_request(server, tmp_path):
    module, *arguments, option = SERVERS[server]
    pytest.importorskip(module)
    (tmp_path / "app.py").write_text(APP)
    port = free_port()
    address = f"127.0.0.1:{port}" if option == "-b" else str(port)
    command = [sys.executable, "-m", module, *arguments, option, address]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        answers = answered(port, 200, process)
    finally:
        process.terminate()
        process.wait(20)
    assert (answers, recorded(tmp_path, "request")) == (200, 200)


@pytest.mark.thorough
def test_a_loop_that_sigterm_ends_has_all_until_its_last_write(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", LOOP], cwd=tmp_path)
    deadline = time.monotonic() + 30
    while not recorded(tmp_path, "latency") and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM  # by its default handler, which is as it was
    ends = [float(line) for line in (tmp_path / "calls").read_text().split()]
    (state,) = MonitorFolder(tmp_path / "monitors").states()
    assert sum(end < state.end for end in ends) <= recorded(tmp_path, "latency") <= len(ends) + 1
