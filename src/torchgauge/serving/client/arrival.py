"""When bytes arrived at a socket, by the kernel's clock: however late a process reads them.

Linux stamps packets as they are received (SO_TIMESTAMPNS; of TCP the last one of what is read).
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time

_SO_TIMESTAMPNS = 35  # of most architectures; others refuse it or give no such message
_STAMP = struct.Struct("@qq")  # seconds and nanoseconds of CLOCK_REALTIME
MESSAGE_SIZE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0

Ancillary = list[tuple[int, int, bytes]]


def arrivals_are_known(*, secure: bool) -> bool:
    """Return whether the kernel stamps what arrives at a connection."""
    if secure:
        return False
    with socket.socket() as stream:
        return stamp_arrivals(stream)


def stamp_arrivals(stream: socket.socket) -> bool:
    """Have the kernel stamp what arrives; return whether it does. Over TLS it cannot."""
    if not sys.platform.startswith("linux") or isinstance(stream, ssl.SSLSocket):
        return False
    try:
        stream.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def arrived(messages: Ancillary, now: float) -> float:
    """Return the moment of `time.monotonic` at which the bytes came that were read at `now`."""
    for level, kind, value in messages:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(value) == _STAMP.size:
            seconds, nanoseconds = _STAMP.unpack(value)
            waited = time.time() - seconds - nanoseconds * 1e-9
            return now - waited if 0 < waited < _LONGEST else now
    return now


_LONGEST = 1.0  # seconds: a longer wait is a clock that was set meanwhile
