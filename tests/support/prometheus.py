"""A real Prometheus for a test, Debian's package `prometheus`; skips where there is none."""

import contextlib
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

CONFIGURATION = """
global: {{scrape_interval: {interval}}}
rule_files: {rules}
scrape_configs:
  - job_name: torchgauge
    {authorization}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def program(name):
    """Return the path of `prometheus` or `promtool`."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(true, seconds=30.0, what="it"):
    """Wait until a function returns something true, and return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if value := true():
                return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()


class Prometheus:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def api(self, name, **parameters):
        address = f"{self.base}/api/v1/{name}?{urllib.parse.urlencode(parameters)}"
        return json.loads(get(address))["data"]

    def values(self, query):
        """Return the labels and the value of each series that a query has now."""
        result = self.api("query", query=query)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def value(self, query):
        """Return the number that a query gives; None for nothing."""
        values = self.values(query)
        assert len(values) < 2, values
        return values[0][1] if values else None

    def until(self, query, true=lambda value: value is not None):
        return until(lambda: true(self.value(query)) and (self.value(query),))[0]


@contextlib.contextmanager
def scraping(folder, port, *, interval="100ms", rules=(), token=None):
    """Run a Prometheus that scrapes a port of this machine."""
    authorization = "" if token is None else f"authorization: {{credentials: {token}}}"
    own = free_port()
    folder.mkdir()
    text = CONFIGURATION.format(
        interval=interval, port=port, authorization=authorization, rules=json.dumps(list(rules))
    )
    (folder / "prometheus.yml").write_text(text)
    command = (
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{own}",
        "--log.level=error",
    )
    process = subprocess.Popen(command)
    try:
        prometheus = Prometheus(own)
        until(lambda: get(f"{prometheus.base}/-/ready"))
        yield prometheus
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def page(render):
    """Serve what `render(accept)` returns, a content type and a body, and yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = render(self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
