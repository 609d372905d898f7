"""Alerts reach a real server, and no failure shows the address."""

import base64
import contextlib
import http.server
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from torchgauge.history import webhook
from torchgauge.history.rules import Rules
from torchgauge.records.trend import Alert, Trend

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
        self.server.authorization = self.headers["Authorization"]
        self.send_response(self.server.status)
        if self.server.status in range(300, 400):
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self):
        self.server.got.append((self.path, "", b""))
        self.send_response(200)
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


@pytest.mark.thorough
@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308, 404, 503])
def test_all_but_success_is_said_and_nobody_else_is_asked(server, status):
    """A redirected POST becomes a GET without the alerts, whose 200 would count as delivered."""
    server.status = status
    told = webhook.send(Rules((), server.url), TREND, ["one"])
    assert told == f"the webhook answered with status {status}"
    assert [path for path, *_ in server.got] == [SECRET]


@pytest.mark.thorough
@pytest.mark.parametrize("status", [200, 201, 204])
def test_every_success_counts(server, status):
    server.status = status
    assert webhook.send(Rules((), server.url), TREND, ["one"]) is None


def test_a_user_and_a_password_go_into_a_header(server):
    url = server.url.replace("//", "//me:p%40ss@").replace("http:", "HTTP:")
    assert webhook.send(Rules((), url), TREND, []) is None
    assert base64.b64decode(server.authorization.removeprefix("Basic ")) == b"me:p@ss"


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1{SECRET}",
        f"http://nowhere.invalid{SECRET}",
        f"http://[::1{SECRET}",
        f"http://127.0.0.1:port{SECRET}",
        f"http://127.0.0.1{SECRET} with\nblanks",
        f"http://me:53CR3T@127.0.0.1:1{SECRET}",
        f"file://{SECRET}",
        f"ftp://127.0.0.1{SECRET}",
        f"data:text/plain,{SECRET}",
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

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuses)
    failed = webhook.send(Rules((), "https://53CR3T.example.org"), TREND, [])
    assert failed == "the webhook could not be reached (SSLCertVerificationError)"


SLOW = {
    "silent": [],
    "byte by byte": [b"H", b"T", b"T", b"P", b"/", b"1", b".", b"1", b" ", b"2", b"0", b"0"] * 9,
    "to be continued": [b"HTTP/1.1 100 Continue\r\n\r\n"] * 99,
}


@pytest.mark.thorough
@pytest.mark.parametrize("parts", SLOW.values(), ids=SLOW)
def test_a_server_that_does_not_come_to_an_end_is_not_waited_for(monkeypatch, parts):
    """Each byte is in time for a limit on one; the whole has one, too."""
    monkeypatch.setattr(webhook, "TIMEOUT", 0.4)
    done = threading.Event()

    def answer():
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                for part in parts:
                    connection.sendall(part)
                    if done.wait(0.05):
                        break
                done.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5.0)  # beside other work the sender may give up before it connects
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            told = webhook.send(Rules((), url), TREND, [])
        finally:
            done.set()
            thread.join()
    assert "did not answer" in told or "could not be reached" in told
