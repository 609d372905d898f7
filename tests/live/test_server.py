"""The server over HTTP: figures, methods, hosts, tokens, paths and headers."""

import contextlib
import http.client
import itertools
import json
import socket
import time

import pytest
from tests.support import history_runs as runs
from tests.support.hostile_texts import MARKUP, ORDER, TERMINAL
from tests.support.live_sites import ask, history, monitors, served

from torchgauge.errors import InputError
from torchgauge.history.store import Store
from torchgauge.live import server as servers
from torchgauge.live.routes import Site

NAME = MARKUP.format("w111w")
UUID = "0" * 36


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    file = tmp_path_factory.mktemp("history") / "h.db"
    with Store.open(str(file)) as store:
        store.add(runs.run(0, target=NAME, branch=TERMINAL.format("w222w")))
    view = history(file)
    yield Site(view, monitors(names=[NAME], looks=2))
    view.close()


@pytest.fixture(scope="module")
def server(site):
    errors = []
    with served(site, errors=errors) as server:
        yield server
    assert errors == []


def raw(server, data):
    """Return what is answered to bytes as they are."""
    with socket.create_connection(server.server_address[:2], timeout=5) as connection:
        connection.sendall(data)
        with contextlib.suppress(ConnectionError):
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_figures_as_json(server):
    status, headers, body = ask(server, "/api/fleet")
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    fleet = json.loads(body)
    (row,) = fleet["history"]["rows"]
    assert row["main"] == {"name": "latency_median", "value": "10.00 ms", "how": "measured"}
    (live,) = fleet["monitors"]["rows"]
    assert live["rate"] == 204 / 5
    _, _, body = ask(server, f"/api/target?target={row['key']}")
    assert json.loads(body)["newest"][0]["commit"] == "c0"
    _, _, body = ask(server, f"/api/trend?target={row['key']}&metric=latency_median")
    assert json.loads(body)["values"] == [0.01e9]
    _, _, body = ask(server, f"/api/monitor?series={live['key']}")
    assert json.loads(body)["window"]["count"] == 204


def test_an_answer_that_cannot_be_made_is_an_error_and_told():
    errors = []
    with served(Site(None, object()), errors=errors) as server:
        status, _, body = ask(server, "/api/fleet")
    assert (status, json.loads(body)["id"]) == (500, "live-failed")
    assert "AttributeError" in errors[0]


def test_names_of_strangers_command_nothing(server):
    """No markup and no character that turns the writing is in an answer; the names are."""
    _, _, body = ask(server, "/api/fleet")
    assert not set(body) & set(b"<>&")
    text = json.loads(body)["history"]["rows"][0]
    assert "w111w" in text["target"]
    assert "w222w" in text["place"]
    assert not ORDER.search(text["target"] + text["place"])


def test_the_page_of_a_run(server, site):
    row = site.history.fleet()["rows"][0]
    uuid = site.history.target(row["key"])["newest"][0]["uuid"]
    status, headers, body = ask(server, f"/run/{uuid}")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert b'<script type="application/json" id="data">' in body
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert policy.removesuffix("; frame-ancestors 'none'").encode() in body


@pytest.mark.parametrize("path", ["/", "/live.js", "/live.css", "/icon.svg", "/api/fleet", "/none"])
def test_every_answer_has_its_safety_headers(server, path):
    _, headers, _ = ask(server, path)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not [name for name in headers if name.startswith("Access-Control")]
    assert headers["Server"] == "torchgauge"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "X"])
def test_nothing_but_get(server, method):
    status, headers, body = ask(server, "/api/fleet", method, Origin="http://evil.example")
    assert status == 405
    assert headers["Allow"] == "GET"
    assert b"w111w" not in body
    assert not [name for name in headers if name.startswith("Access-Control")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7878", "192.0.2.1", "localhost."])
def test_a_name_that_leads_here_from_elsewhere_reads_nothing(server, host):
    status, _, body = ask(server, "/api/fleet", Host=host)
    assert status == 421
    assert b"evil" not in body


def test_a_request_without_a_host_or_with_two(server):
    assert b" 421 " in raw(server, b"GET /api/fleet HTTP/1.1\r\n\r\n")
    two = b"GET /api/fleet HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert b" 421 " in raw(server, two)
    assert b"w111w" not in raw(server, b"GET /api/fleet\r\n")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/../../etc/passwd", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/live.js/../page.js", 404),
        ("/assets/page.js", 404),
        ("//etc/passwd", 404),
        ("/run/../../etc/passwd", 404),
        (f"/run/{UUID}", 404),
        (f"/run/{UUID}x", 404),
        ("/%ff", 400),
        ("/api/fleet?limit=x", 400),
        ("/api/target", 400),
        ("/api/target?target=../../x", 400),
        ("/api/target?target=0000000000000000", 404),
        ("/api/trend?target=0000000000000000&metric=" + "x" * 5_000, 404),
        ("/api/monitor?series=0000000000000000&window=nan", 404),
        ("/api/monitor?series=0000000000000000&window=x", 400),
        ("/api/fleet?" + "&".join(f"a{n}=1" for n in range(50)), 400),
        ("http://localhost/api/fleet", 400),
        ("http://evil.example/api/fleet", 400),
    ],
)
def test_addresses_that_are_not_of_the_page(server, path, status):
    answered, _, body = ask(server, path)
    assert answered == status
    assert b"root:" not in body
    assert b"evil" not in body
    assert b"etc" not in body


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x1b[31mGET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"",
    ],
)
def test_what_is_no_request(server, data):
    answer = raw(server, data)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b"\x1b" not in answer
    assert ask(server, "/")[0] == 200


def test_a_body_is_not_the_next_request(server):
    hidden = b"GET /api/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(hidden)}\r\n\r\n"
    assert raw(server, head.encode() + hidden).count(b"HTTP/1.1 ") == 1


def test_an_answer_that_did_not_change_is_not_sent_again(server):
    _, headers, body = ask(server, "/live.css")
    status, again, nothing = ask(server, "/live.css", If_None_Match=headers["ETag"])
    assert (status, nothing) == (304, b"")
    assert again["ETag"] == headers["ETag"]
    assert ask(server, "/live.css", If_None_Match='"other"')[2] == body
    assert headers["Cache-Control"] == "no-cache"


def test_a_token_goes_from_the_address_into_a_cookie(site):
    token = "0123456789abcdef"
    with served(site, token=token) as server:
        assert ask(server, "/")[0] == 401
        assert ask(server, "/api/fleet")[0] == 401
        assert ask(server, "/?token=wrong")[0] == 401
        assert ask(server, f"/api/fleet?token={token}")[0] == 401
        status, headers, _ = ask(server, f"/?token={token}")
        assert (status, headers["Location"]) == (303, "/")
        pair = headers["Set-Cookie"].partition(";")[0]
        assert ask(server, "/api/fleet", Cookie=pair)[0] == 200
        assert ask(server, "/api/fleet", Authorization=f"Bearer {token}")[0] == 200
        assert ask(server, "/api/fleet", Cookie=pair + "x")[0] == 401
        assert ask(server, "/api/fleet", Cookie=pair, Host="evil.example")[0] == 421
        assert server.url.endswith(f"/?token={token}")


def test_beyond_loopback_a_token_is_made(site):
    with served(site, host="0.0.0.0") as server:
        assert len(server.access.token) == 32
        assert ask(server, "/")[0] == 401
        assert ask(server, f"/?token={server.access.token}")[0] == 303


def test_a_port_that_is_taken_and_a_host_that_is_not_ours(site):
    with served(site) as server, pytest.raises(InputError) as raised:
        servers.LiveServer("127.0.0.1", server.server_address[1], site, None, print)
    assert raised.value.id == "port-taken"
    for host in ("192.0.2.1", "nowhere.invalid", "a" * 300, "\x00"):
        with pytest.raises(InputError) as raised:
            servers.LiveServer(host, 0, site, None, print)
        assert raised.value.id == "host-invalid"


def connected(server, stack, data=b""):
    connection = stack.enter_context(socket.create_connection(server.server_address[:2], timeout=5))
    connection.sendall(data)
    return connection


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def wait_until(holds):
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.01)
    pytest.fail("it did not come to be")


def test_who_waits_longest_makes_room_and_strangers_first(site, monkeypatch):
    """Those that drip their request byte by byte lock nobody out."""
    monkeypatch.setattr(servers, "MAX_CONNECTIONS", 3)
    with served(site) as server, contextlib.ExitStack() as stack:
        known = connected(server, stack, b"GET /api/fleet HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert known.recv(12) == b"HTTP/1.1 200"
        strangers = [connected(server, stack, b"GET") for _ in range(2)]
        assert ask(server, "/")[0] == 200
        assert is_closed(strangers[0])
        connected(server, stack)
        assert ask(server, "/")[0] == 200
        assert is_closed(strangers[1])
        known.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while b"HTTP/1.1 200" not in known.recv(65_536):
            pass


def test_strangers_have_a_share_of_the_connections(site, monkeypatch):
    monkeypatch.setattr(servers, "MAX_STRANGERS", 2)
    with served(site) as server, contextlib.ExitStack() as stack:
        strangers = [connected(server, stack) for _ in range(3)]
        assert is_closed(strangers[0])
        wait_until(lambda: len(server.connections) == 2)


def test_the_head_of_a_request_has_a_deadline_as_a_whole(site, monkeypatch):
    monkeypatch.setattr(servers, "HEAD", 0.3)
    with served(site) as server, contextlib.ExitStack() as stack:
        slow = connected(server, stack)
        with contextlib.suppress(ConnectionError):
            for byte in itertools.cycle(b"GET / HTTP/1.1 "):
                slow.sendall(bytes([byte]))
                time.sleep(0.05)
        wait_until(lambda: not server.connections)


def test_beyond_what_is_being_answered_nobody_is_let_in(site, monkeypatch):
    monkeypatch.setattr(servers, "MAX_CONNECTIONS", 2)
    with served(site) as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            connected(server, stack)
        wait_until(lambda: len(server.connections) == 2)
        for connection in server.connections.values():
            connection.waiting_since = None
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(server, "/")


def test_an_error_of_the_history_is_an_answer_and_hides_no_monitor(tmp_path):
    file = tmp_path / "h.db"
    with Store.open(str(file)) as store:
        store.add(runs.run(0))
    view = history(file)
    with served(Site(view, monitors(looks=1))) as server:
        file.unlink()
        status, _, body = ask(server, "/api/fleet")
        assert status == 200
        assert json.loads(body)["history"]["error"]["id"] == "store-missing"
        assert len(json.loads(body)["monitors"]["rows"]) == 1
        status, _, body = ask(server, "/api/target?target=0000000000000000")
        assert (status, json.loads(body)["id"]) == (503, "store-missing")
    view.close()


def test_only_what_there_is():
    with served(Site(None, monitors(looks=1))) as server:
        assert json.loads(ask(server, "/api/fleet")[2])["history"] is None
        assert ask(server, "/api/target?target=0000000000000000")[0] == 404
        assert ask(server, f"/run/{UUID}")[0] == 404


def test_a_locked_history_is_waited_for(tmp_path, monkeypatch):
    """A writer that holds the lock for good is an error; one that ends is not seen."""
    from torchgauge.errors import StoreError
    from torchgauge.live import history_reader

    file = tmp_path / "h.db"
    with Store.open(str(file)) as store:
        store.add(runs.run(0))
    reader = history_reader.HistoryReader(str(file))
    monkeypatch.setattr(history_reader, "LONGEST_WAIT", 0.2)
    tries = []

    def busy(store):
        tries.append(store)
        if len(tries) < 3:
            raise StoreError("busy", id="store-busy")
        return len(tries)

    assert reader.read(busy) == 3
    tries.clear()
    with pytest.raises(StoreError):
        reader.read(lambda store: busy(tries.clear()))
    reader.close()
