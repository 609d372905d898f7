"""The kernel's stamps say when bytes arrived, however late they are read."""

import socket
import struct
import sys
from time import monotonic, sleep, time

import pytest

from torchgauge.serving.client.send_plan import MESSAGE_SIZE, arrived, stamp_arrivals

LATE = 0.05  # seconds


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux stamps what arrives")
def test_bytes_that_are_read_late_have_arrived_before():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as stream:
        stream.connect(server.getsockname())
        assert stamp_arrivals(stream)
        peer, _ = server.accept()
        with peer:
            # The kernel begins to stamp some time after the machine's first socket asks for it:
            # until then a stamp is the time of reading.
            for _ in range(20):
                begin = monotonic()
                peer.send(b"answer")
                sent = monotonic()
                sleep(LATE)
                buffer = bytearray(100)
                size, messages, _, _ = stream.recvmsg_into((buffer,), MESSAGE_SIZE)
                now = monotonic()
                moment = arrived(messages, now)
                if moment < now - LATE * 0.9:
                    break
    assert size == 6
    # Between the readings of two clocks the process may have had to wait for a core.
    assert begin - LATE < moment < now - LATE * 0.9
    assert moment < sent + LATE * 0.9


def stamp(moment):
    return [(socket.SOL_SOCKET, 35, struct.pack("@qq", *divmod(int(moment * 1e9), 10**9)))]


def test_a_clock_that_was_set_is_not_believed():
    now = monotonic()
    assert arrived(stamp(time() - 0.2), now) == pytest.approx(now - 0.2, abs=0.05)
    assert arrived(stamp(time() - 3600), now) == now
    assert arrived(stamp(time() + 3600), now) == now


@pytest.mark.parametrize(
    "messages", [[], [(socket.SOL_SOCKET, 1, b"")], [(socket.SOL_SOCKET, 35, b"short")]]
)
def test_without_a_stamp_it_is_when_it_was_read(messages):
    assert arrived(messages, 12.0) == 12.0
