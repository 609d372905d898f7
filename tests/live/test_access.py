"""Who may read: hosts that are ours, and tokens."""

import hmac

import pytest

from torchgauge.live.server import Access, cookie, sent_token

LOOPBACK = Access.to("127.0.0.1", "127.0.0.1")
NETWORK = Access.to("0.0.0.0", "0.0.0.0")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:7878", "127.0.0.1", "127.0.0.1:1", "[::1]:7878", "LOCALHOST"]
)
def test_names_of_this_machine(host):
    assert LOOPBACK.takes_host([host])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7878",
        "localhost.evil.example",
        "localhost.",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil@localhost",
        "localhost/x",
        "localhost?x",
        "192.0.2.1",
        "0x7f.1",
        "[::1",
        "",
        "localhost:port",
        "\u202elocalhost",
    ],
)
def test_other_names_and_what_is_no_name(host):
    assert not LOOPBACK.takes_host([host])


def test_one_host_alone():
    assert not LOOPBACK.takes_host([])
    assert not LOOPBACK.takes_host(["localhost", "localhost"])


def test_beyond_loopback_by_address_or_by_the_name_that_was_given():
    assert NETWORK.takes_host(["192.0.2.1:7878"])
    assert not NETWORK.takes_host(["evil.example"])
    assert Access.to("Models.Example", "192.0.2.1").takes_host(["models.example:7878"])


def test_loopback_needs_no_token_and_beyond_it_a_random_one():
    assert LOOPBACK.token is None
    assert LOOPBACK.takes(None)
    tokens = {Access.to("0.0.0.0", "0.0.0.0").token for _ in range(3)}
    assert len(tokens) == 3
    assert min(map(len, tokens)) == 32
    assert NETWORK.takes(NETWORK.token)
    for wrong in (None, "", NETWORK.token[:-1], NETWORK.token + "x", "ü"):
        assert not NETWORK.takes(wrong)


def test_a_chosen_token_holds_on_loopback_too():
    access = Access.to("localhost", "::1", "a" * 16)
    assert not access.takes(None)
    assert access.takes("a" * 16)


def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both)
    )
    NETWORK.takes("x")
    assert compared == [(b"x", NETWORK.token.encode())]


def test_the_token_of_a_request():
    header = cookie("secret", 80)
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    pair = header.partition(";")[0]
    assert sent_token(f"a=b; {pair}", None, 80) == "secret"
    assert sent_token(pair, None, 81) is None
    assert sent_token(None, "Bearer secret", 80) == "secret"
    assert sent_token("\x00=;;=\x7f", "Basic x", 80) is None
