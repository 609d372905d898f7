"""Load on servers as they are used: uvicorn with FastAPI and torch, and nginx before it."""

import contextlib
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import torchgauge as tg

SERVICE = Path(__file__).parents[1] / "support/servers/torch_service.py"
pytestmark = pytest.mark.thorough


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def process(arguments, ready):
    child = subprocess.Popen(arguments, stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(ready, timeout=5).close()
                break
            assert child.poll() is None, "it has ended"
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.1)
        yield child
    finally:
        child.terminate()
        child.wait(20)
        child.stdin.close()


@contextlib.contextmanager
def torch_service(life=120):
    for module in ("uvicorn", "fastapi"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    arguments = [sys.executable, str(SERVICE), f"--port={port}", f"--life={life}"]
    with process(arguments, f"{address}/docs") as child:
        yield address, child


@contextlib.contextmanager
def nginx(address, folder):
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    settings = folder / "nginx.conf"
    settings.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error;\n"
        "events {}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen 127.0.0.1:{port};\n"
        f"location / {{ proxy_pass {address}; proxy_http_version 1.1; }} }} }}\n"
    )
    own = f"http://127.0.0.1:{port}"
    with process([program, "-c", str(settings), "-e", f"{folder}/error"], f"{own}/docs"):
        yield own


def body(folder):
    path = folder / "body.json"
    path.write_text(json.dumps({"x": [0.5] * 64}))
    return path


def test_a_torch_model_behind_fastapi(tmp_path):
    with torch_service() as (address, _):
        serving = tg.measure_serving(
            f"{address}/predict", rate=[30, 60], duration=1, body=body(tmp_path), goals="p50<10s"
        )
        missing = tg.measure_serving(f"{address}/nowhere", rate=30, duration=0.5)
    for level in serving.levels:
        assert set(level.requests.fate) == {"done"}
        assert set(level.requests.status) == {200}
        assert level.server.memory[0] > 2**20
    assert serving.served_by.software == "uvicorn"
    assert set(missing.levels[0].requests.fate) == {"status"}
    assert set(missing.levels[0].requests.status) == {404}


@pytest.mark.slow
def test_the_knee_of_a_torch_server_is_confirmed_by_further_runs(tmp_path):
    """The rate that a search reports meets the goal, and half as much again misses it."""
    goal = {"goals": "p95<100ms", "body": body(tmp_path)}
    with torch_service(life=400) as (address, _):
        path = f"{address}/predict"
        capacity = tg.measure_serving(path, rate="auto", duration=4, **goal).capacity
        if capacity.interval is None:
            pytest.skip(capacity.reason)  # a machine too busy for the client
        within = tg.measure_serving(path, rate=0.9 * capacity.rate, duration=10, **goal)
        beyond = tg.measure_serving(path, rate=1.5 * capacity.rate, duration=10, **goal)
    assert within.levels[0].verdict != "missed"
    assert beyond.levels[0].verdict != "met"


@pytest.mark.slow
def test_nginx_before_a_torch_model_that_ends(tmp_path):
    with torch_service() as (address, child), nginx(address, tmp_path) as front:
        serving = tg.measure_serving(f"{front}/predict", rate=40, duration=2, body=body(tmp_path))
        child.kill()
        child.wait()
        without = tg.measure_serving(f"{front}/predict", rate=40, duration=1, body=body(tmp_path))
    assert set(serving.levels[0].requests.fate) == {"done"}
    assert serving.served_by.software.startswith("nginx")
    assert set(without.levels[0].requests.status) == {502}
