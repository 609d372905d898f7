"""Only this machine is loaded, and no secret is kept."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.errors import InputError
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.request_head import HeadOptions, RequestHead


def refusal(text: str, **options) -> InputError:
    """The error that an address raises."""
    with pytest.raises(InputError) as raised:
        parse_address(text, **options)
    return raised.value


@pytest.mark.parametrize(
    ("text", "authority", "target"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "/"),
        ("http://127.0.0.1/a b".replace(" ", "%20"), "127.0.0.1", "/a%20b"),
        ("https://[::1]:8443/v1?x=1&y=%20", "[::1]:8443", "/v1?x=1&y=%20"),
        ("http://localhost:80/ö", "localhost", "/%C3%B6"),
        ("http://127.0.0.1:1/p#fragment", "127.0.0.1:1", "/p"),
    ],
)
def test_parts_of_an_address(text, authority, target):
    address = parse_address(text)
    assert (address.authority, address.target) == (authority, target)


def test_a_host_is_named_in_ascii(monkeypatch):
    assert parse_address("http://ｌocalhost:8000/").authority == "localhost:8000"
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **_: [(0, 0, 0, "", ("::1", 0))])
    address = parse_address("http://bücher.example/")
    assert address.host == "xn--bcher-kva.example"
    assert RequestHead(address, HeadOptions()).request(b"").isascii()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("http://127.0.0.1:1?api-version=1", "/v1/chat?api-version=1"),
        ("http://127.0.0.1:1/", "/v1/chat"),
        ("http://127.0.0.1:1/own?x", "/own?x"),
    ],
)
def test_the_path_of_an_api_keeps_the_query(text, target):
    assert parse_address(text).with_default_path("/v1/chat").target == target


def test_the_text_of_an_address_has_no_query():
    assert parse_address("http://127.0.0.1:1/p?key=secret").text == "http://127.0.0.1:1/p"


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0", "[::ffff:192.0.2.1]", "[fe80::1]"])
def test_other_machines_need_to_be_allowed(host):
    assert refusal(f"http://{host}:8000/").id == "address-remote"
    assert parse_address(f"http://{host}:8000/", allow_remote=True).port == 8000


def test_credentials_are_refused_and_not_repeated():
    error = refusal("http://user:geheim@127.0.0.1:8000/")
    assert error.id == "address-credentials"
    assert "geheim" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1:8000", "ftp://127.0.0.1/", "http://", "http://127.0.0.1:0/"),
        *(
            "http://127.0.0.1:99999/",
            "http://[::1/",
            "http://127.0.0.1/\r\nX: 1",
            "http://127.0.0.1/ x",
            "http://a..b/",
            "http://" + "a" * 64,
        ),
    ],
)
def test_what_is_no_address(text):
    assert refusal(text).id == "address-invalid"


@given(st.text(max_size=40))
def test_a_target_never_ends_its_line(path):
    try:
        target = parse_address(f"http://127.0.0.1/{path}").target
    except InputError:
        return
    assert target.isascii()
    assert not any(character <= " " for character in target)


@pytest.mark.parametrize(
    ("location", "elsewhere"),
    [
        *(("/other", False), ("other?x", False), ("http://127.0.0.1:8000/x", False)),
        *(("http://127.0.0.1:8001/x", True), ("https://127.0.0.1:8000/x", True)),
        *(("//192.0.2.1/x", True), ("http://[", True), ("http://127.0.0.1:x/", True)),
    ],
)
def test_where_a_redirect_leads(location, elsewhere):
    assert parse_address("http://127.0.0.1:8000/p").leads_elsewhere(location) is elsewhere
