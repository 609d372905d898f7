"""A token from an environment variable is sent, and is in nothing that is kept or shown."""

import asyncio
import pickle
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from torchgauge.errors import InputError
from torchgauge.serving.client import client as load_client
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.request_head import HeadOptions, RequestHead
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan

SECRET = "sk-geheim-0123456789"


class Echo(BaseHTTPRequestHandler):
    """A server that repeats the token wherever it can."""

    protocol_version = "HTTP/1.1"
    heard: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.heard.append(self.headers["Authorization"])
        token = self.headers["Authorization"] or ""
        status = 200 if self.path == "/ok" else 401
        self.wfile.write(
            f"HTTP/1.1 {status} {token}\r\nServer: {token}\r\nLocation: http://{SECRET}.invalid/\r\n"
            f"WWW-Authenticate: {token}\r\nContent-Length: {len(token)}\r\n\r\n{token}".encode()
        )

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def echo():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Echo.heard.clear()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.thorough
@pytest.mark.parametrize(("path", "fate"), [("/ok", "done"), ("/refused", "redirect")])
def test_a_token_is_sent_and_kept_nowhere(echo, path, fate, monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", SECRET)
    plan = SendPlan(
        address=parse_address(echo + path),
        schedule=[0.0, 0.01],
        head=HeadOptions(headers=(("Authorization", "Bearer env:MODEL_TOKEN"),)),
    )
    load = send(plan)
    assert load.requests.fate == (fate,) * 2
    assert Echo.heard == [f"Bearer {SECRET}"] * 2
    assert load.software == "Bearer <MODEL_TOKEN>"
    assert SECRET not in repr(load) + repr(plan)
    assert SECRET.encode() not in pickle.dumps(load) + pickle.dumps(plan)


class Telling:
    """A library whose errors hold the token, past where they are cut."""

    opened = 0

    def __init__(self, sender) -> None:
        self.sender = sender

    async def exchange(self, row, ready) -> None:
        self.sender.ended(row, "status", time.monotonic(), "x" * 290 + SECRET)

    async def close(self) -> None:
        pass


def test_the_text_of_an_error_has_no_token(monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", SECRET)
    monkeypatch.setattr(load_client, "library_client", lambda *arguments: Telling(arguments[-1]))
    plan = SendPlan(
        address=parse_address("http://127.0.0.1:9/"),
        schedule=[0.0],
        head=HeadOptions(headers=(("Authorization", "Bearer env:MODEL_TOKEN"),)),
    )

    async def problems():
        client = load_client.LoadClient(plan)
        await client.run(time.monotonic())
        return client.problems

    assert asyncio.run(problems()) == {"status": "x" * 290 + "<MODEL_TOK"}


def test_a_token_shows_its_variable_alone(monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", SECRET)
    options = HeadOptions(headers=(("Authorization", "Bearer env:MODEL_TOKEN"), ("X-Key", SECRET)))
    head = RequestHead(parse_address("http://127.0.0.1:1/"), options)
    assert SECRET not in repr(options) + repr(head) + str(head)


@pytest.mark.parametrize(
    ("value", "id"),
    [
        ("", "token-missing"),
        (f"{SECRET}\r\nX: 1", "token-invalid"),
        (f"{SECRET} ö", "token-invalid"),
    ],
)
def test_what_is_no_token(value, id, monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", value)
    plan = SendPlan(
        address=parse_address("http://127.0.0.1:1/"),
        schedule=[0.0],
        head=HeadOptions(headers=(("Authorization", "Bearer env:MODEL_TOKEN"),)),
    )
    with pytest.raises(InputError) as raised:
        send(plan)
    assert raised.value.id == id
    assert SECRET not in str(raised.value)
