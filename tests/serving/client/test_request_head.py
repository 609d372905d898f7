"""Methods and headers as they are sent, and the values that nothing shows."""

import pickle

import pytest

from torchgauge.errors import InputError
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.request_head import HeadOptions, RequestHead, shown_header

ADDRESS = parse_address("http://127.0.0.1:8000/x?k=1")
SECRET = 'geheim-"0123'


def head(*headers, **options) -> RequestHead:
    return RequestHead(ADDRESS, HeadOptions(headers=headers, **options))


def test_a_request_without_options():
    first, *lines = head().request(b"").decode().split("\r\n")
    assert first == "GET /x?k=1 HTTP/1.1"
    assert lines[0] == "Host: 127.0.0.1:8000"
    assert [line.partition(":")[0] for line in lines[1:-2]] == ["User-Agent", "Accept"]
    posted = head().request(b"{}")
    assert posted.startswith(b"POST ")
    assert posted.endswith(b"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")


def test_what_is_given_replaces_what_is_usual(monkeypatch):
    monkeypatch.setenv("A_KEY", SECRET)
    given = (("content-type", "image/png"), ("HOST", "other"), ("X-Key", "env:A_KEY"))
    request = head(*given, ("Authorization", "Basic env:A_KEY"), method="PUT").request(b"\x89")
    lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")
    assert lines[0] == "PUT /x?k=1 HTTP/1.1"
    assert sorted(line for line in lines[1:] if not line.startswith(("User-Agent", "Accept"))) == [
        f"Authorization: Basic {SECRET}", "Content-Length: 1", "HOST: other", f"X-Key: {SECRET}",
        "content-type: image/png",
    ]  # fmt: skip
    assert not HeadOptions(headers=given).is_json
    assert HeadOptions(headers=(("Content-Type", "application/problem+json; v=1"),)).is_json


@pytest.mark.parametrize(("method", "length"), [("POST", True), ("PUT", True), ("DELETE", False)])
def test_a_method_without_a_body(method, length):
    assert (b"Content-Length: 0" in head(method=method).request(b"")) == length


def test_values_are_shown_nowhere(monkeypatch):
    monkeypatch.setenv("A_KEY", SECRET)
    options = HeadOptions(
        headers=(("X-Key", "env:A_KEY"), ("X-Own", "Token literal-7"), ("X-V", "1"))
    )
    own = RequestHead(ADDRESS, options)
    assert "literal-7" not in repr(options) + repr(own)
    assert SECRET.encode() not in pickle.dumps(options)
    told = f'1 {SECRET} "geheim-\\"0123" literal-7'
    assert own.hidden(told) == '1 <A_KEY> "<A_KEY>" <X-Own>'
    assert [shown_header(name, value) for name, value in options.headers] == [
        "X-Key=env:A_KEY", "X-Own=env:X_OWN", "X-V=env:X_V",
    ]  # fmt: skip
    assert shown_header("Accept", "text/plain") == "Accept=text/plain"
    assert shown_header("Authorization", "Bearer env:K") == "Authorization=Bearer env:K"


@pytest.mark.parametrize(
    "given",
    [
        {"headers": (("Content-Length", "5"),)},
        {"headers": (("X\r\nY", "5"),)},
        {"headers": (("X-Key", f"{SECRET}\r\nY: 1"),)},
        {"headers": (("X-Key", f"{SECRET}ö"),)},
        {"headers": (("X-Key", ""),)},
        {"method": "HEAD"},
        {"method": "GET / HTTP/1.1\r\n"},
    ],
)
def test_what_cannot_be_sent_is_refused_without_its_value(given):
    with pytest.raises(InputError) as raised:
        HeadOptions(**given)
    assert raised.value.id == "option-invalid"
    assert SECRET not in str(raised.value)
