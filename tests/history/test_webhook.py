"""Alerts reach a real server, and no failure shows the address."""

import http.server
import json
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from torchgauge.history import webhook
from torchgauge.history.rules import Rules
from torchgauge.model.trend import Alert, Trend

SECRET = "/services/T0P-53CR3T"
TREND = Trend(
    store="h.db",
    series=(),
    alerts=(
        Alert(
            rule="r", target="net", branch="main", machine="m", metric="latency_median",
            layer=None, message="slow", value=2.0, limit=1.0, unit="s",
        ),
    ),
)  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.got.append((self.path, self.headers["Content-Type"], self.rfile.read(length)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as made:
        made.got, made.status = [], 200
        made.url = f"http://127.0.0.1:{made.server_port}{SECRET}"
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_alerts_are_posted(server):
    assert webhook.send(Rules((), server.url), TREND, ["one", "two"]) is None
    ((path, kind, body),) = server.got
    assert (path, kind) == (SECRET, "application/json")
    content = json.loads(body)
    assert content["text"] == "one\ntwo"
    assert content["store"] == "h.db"
    assert content["alerts"][0]["message"] == "slow"
    assert content["alerts"][0]["limit"] == 1.0


def test_the_address_may_come_from_a_variable(server, monkeypatch):
    monkeypatch.setenv("HOOK", server.url)
    assert webhook.send(Rules((), url_env="HOOK"), TREND, []) is None
    assert len(server.got) == 1
    monkeypatch.delenv("HOOK")
    assert "HOOK" in webhook.send(Rules((), url_env="HOOK"), TREND, [])


def test_nothing_is_sent_where_nothing_is_asked(server):
    assert webhook.send(Rules(()), TREND, []) is None
    assert server.got == []


def test_a_status_of_failure_is_said(server):
    server.status = 503
    assert webhook.send(Rules((), server.url), TREND, []) == "the webhook answered with status 503"


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1{SECRET}",
        f"http://nowhere.invalid{SECRET}",
        f"http://[::1{SECRET}",
        f"http://127.0.0.1:port{SECRET}",
        f"http://127.0.0.1{SECRET} with\nblanks",
        f"file://{SECRET}",
        SECRET,
    ],
)
def test_a_failure_shows_no_address(url):
    failed = webhook.send(Rules((), url), TREND, [])
    assert failed.startswith("the webhook")
    assert "53CR3T" not in failed


def test_a_certificate_of_another_host_shows_no_address(monkeypatch):
    mismatch = "certificate is not valid for '53CR3T.example.org'"

    def refuses(*_, **__):
        raise urllib.error.URLError(ssl.SSLCertVerificationError(1, mismatch))

    monkeypatch.setattr(urllib.request, "urlopen", refuses)
    failed = webhook.send(Rules((), "https://53CR3T.example.org"), TREND, [])
    assert failed == "the webhook could not be reached (SSLCertVerificationError)"


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    import socket

    monkeypatch.setattr(webhook, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "could not be reached" in webhook.send(Rules((), url), TREND, [])
