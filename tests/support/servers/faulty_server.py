"""A server that fails in the way that the path names: `POST /reset`, `/cut`, `/status/503`, ….

`/every` takes the faults in turn, by the order of arrival; `/mutated` answers with bytes changed at
random, from `--seed` and the order of arrival. `FAULTS` lists the paths. `GET /log` returns how
many requests each got.
"""

import asyncio
import collections
import itertools
import json
import random
import socket
import struct

from http_server import Request, arguments, serve

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = 'data: {"choices": [{"index": 0, "delta": {"content": "töken"}}]}\n\n'.encode()
WHOLE = HEAD + b'Content-Length: 14\r\n\r\n{"done": true}'


def chunk(data: bytes) -> bytes:
    """Return data as a chunk of HTTP/1.1."""
    return b"%x\r\n%s\r\n" % (len(data), data)


WHOLE_STREAM = STREAM + chunk(EVENT) * 3 + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Faulty:
    """The faults, by path."""

    def __init__(self, options) -> None:
        self.options = options
        self.counts: collections.Counter[str] = collections.Counter()
        self.turns = itertools.cycle(FAULTS)

    def handle(self, request: Request) -> None:
        """Answer, or not, as the path says."""
        path = request.path
        if path == "/log":
            request.answer(json.dumps(self.counts).encode())
            return
        if path == "/every":
            path = next(self.turns)
        self.counts[path] += 1
        _, name, *rest = path.split("/")
        fault = getattr(self, name.replace("-", "_"), None)
        if fault is None:
            request.answer(b"{}", "404 Not Found")
        else:
            fault(request, *rest)

    def ok(self, request: Request) -> None:
        """A whole answer."""
        request.write(WHOLE)

    def stream(self, request: Request) -> None:
        """A whole stream."""
        request.write(WHOLE_STREAM)

    def status(self, request: Request, number: str) -> None:
        """A whole answer of another status."""
        request.answer(b'{"error": {"message": "as asked"}}', f"{number} Status")

    def reset(self, request: Request) -> None:
        """The connection is reset before a byte of the answer."""
        lingering = struct.pack("ii", 1, 0)  # closing sends a reset, not an end
        sock = request.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
        request.transport.abort()

    def close(self, request: Request) -> None:
        """The connection is closed before a byte of the answer."""
        request.transport.close()

    def cut(self, request: Request) -> None:
        """The body ends before its Content-Length."""
        request.write(WHOLE[:-5])
        request.transport.close()

    def cut_head(self, request: Request) -> None:
        """The connection closes within the head."""
        request.write(HEAD[:20])
        request.transport.close()

    def cut_stream(self, request: Request) -> None:
        """A stream ends without its last event."""
        request.write(STREAM + chunk(EVENT) * 2 + b"0\r\n\r\n")

    def cut_character(self, request: Request) -> None:
        """A stream closes within a character of two bytes."""
        end = EVENT.index("ö".encode()) + 1
        request.write(STREAM + chunk(EVENT) + b"%x\r\n" % len(EVENT) + EVENT[:end])
        request.transport.close()

    def split_character(self, request: Request) -> None:
        """A whole stream, a byte at a time: every character, event and chunk is split."""
        task = asyncio.get_running_loop().create_task(self._drip(request, WHOLE_STREAM, 2e-4))
        request.transport.task = task

    def error_in_stream(self, request: Request) -> None:
        """A stream that names an error, then ends in order."""
        error = b'data: {"error": {"message": "out of cache", "code": 500}}\n\n'
        done = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        request.write(STREAM + chunk(EVENT) + chunk(error) + done)

    def slow(self, request: Request, seconds: str = "30") -> None:
        """A body that takes its time."""
        task = asyncio.get_running_loop().create_task(
            self._drip(request, WHOLE, float(seconds) / len(WHOLE))
        )
        request.transport.task = task

    def silent(self, request: Request) -> None:
        """No answer at all."""

    def redirect(self, request: Request, host: str = "") -> None:
        """A redirect to /ok here, or, with /redirect/HOST, to a host that must not be asked."""
        to = f"http://{host}/ok" if host else "/ok"
        request.answer(b"", "307 Temporary Redirect", Location=to)

    def garbage(self, request: Request) -> None:
        """Bytes that are no HTTP."""
        request.write(b"\x00\xff\xfe nothing of HTTP \r\n\r\n")

    def endless_head(self, request: Request) -> None:
        """A head without an end."""
        request.write(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"a" * 2**20)

    def two_answers(self, request: Request) -> None:
        """An answer that nothing asked for, after the one that was."""
        request.write(WHOLE * 2)

    def mutated(self, request: Request) -> None:
        """An answer or a stream in which some bytes are others, missing or doubled."""
        numbers = random.Random(self.options.seed * 1_000_003 + self.counts["/mutated"])
        data = bytearray(numbers.choice((WHOLE, WHOLE_STREAM)))
        for _ in range(numbers.randint(1, 6)):
            index = numbers.randrange(len(data))
            change = numbers.choice(("other", "missing", "doubled", "end"))
            if change == "other":
                data[index] = numbers.randrange(256)
            elif change == "missing":
                del data[index : index + numbers.randint(1, 8)]
            elif change == "doubled":
                data[index:index] = data[index : index + 8]
            else:
                del data[max(1, index) :]
            if not data:
                break
        request.write(bytes(data))
        if numbers.random() < 0.5:
            request.transport.close()

    async def _drip(self, request: Request, data: bytes, gap: float) -> None:
        for index in range(len(data)):
            if request.transport.is_closing():
                return
            request.write(data[index : index + 1])
            await asyncio.sleep(gap)


FAULTS = (
    *("/ok", "/stream", "/status/404", "/status/429", "/status/500", "/status/503", "/reset"),
    *("/close", "/cut", "/cut-head", "/cut-stream", "/cut-character", "/split-character"),
    *("/error-in-stream", "/slow", "/silent", "/redirect", "/redirect/192.0.2.1", "/garbage"),
    *("/endless-head", "/two-answers", "/mutated"),
)

if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    serve(chosen, lambda: Faulty(chosen).handle)
