"""A queue whose latencies theory knows: `workers` behind one queue, first in, first out.

A request names its service time in seconds: `{"service": 0.01}` in its body or `?service=0.01`;
others take the distribution of `--service`. It is kept by timers alone and needs no processor.
With `--pause-at 5 --pause 2` nothing moves from 5 s to 7 s after the first request. `GET /log`
returns, in order of arrival, what the server itself did: `arrived`, `started`, `finished` on the
clock of `time.monotonic`, and `service`.
"""

import heapq
import json
import math
import random
import time

from http_server import Request, arguments, serve
from precise_timer import PreciseTimer


def drawn(distribution: str, numbers: random.Random) -> float:
    """Return a service time of "0.01", "exponential:0.01" or "lognormal:0.01:0.5" (mean, cv)."""
    kind, *values = distribution.split(":")
    if kind == "exponential":
        return numbers.expovariate(1 / float(values[0]))
    if kind == "lognormal":
        mean, variation = map(float, values)
        sigma = math.sqrt(math.log1p(variation**2))
        return mean * numbers.lognormvariate(-(sigma**2) / 2, sigma)
    return float(kind)


class Queue:
    """The queue: it knows on arrival when each request is done."""

    def __init__(self, options) -> None:
        self.options = options
        self.timer = PreciseTimer()
        self.numbers = random.Random(options.seed)
        self.free = [0.0] * options.workers
        self.pause = (math.inf, math.inf)
        self.log: list[dict[str, float]] = []

    def handle(self, request: Request) -> None:
        """Answer when the worker that is free first has served it."""
        now = time.monotonic()
        if request.path == "/log":
            request.answer(json.dumps(self.log).encode())
            return
        if not self.log and self.options.pause:
            begin = now + self.options.pause_at
            self.pause = (begin, begin + self.options.pause)
        service = request.query.get("service") or request.json.get("service")
        if service is None:
            service = drawn(self.options.service, self.numbers)
        started, finished = self.times(now, float(service))
        row = {"arrived": now, "started": started, "finished": finished, "service": float(service)}
        self.log.append(row)
        self.timer.at(finished, lambda: request.answer(b'{"done": true}'))

    def times(self, now: float, service: float) -> tuple[float, float]:
        """Return when a request starts and ends, and occupy the worker until then."""
        started = max(now, heapq.heappop(self.free))
        begin, end = self.pause
        if begin <= started < end:
            started = end
        finished = started + service
        if started < begin < finished:
            finished += end - begin
        heapq.heappush(self.free, finished)
        return started, finished


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--service", default="0.001")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause-at", type=float, default=0.0)
    parser.add_argument("--pause", type=float, default=0.0)
    chosen = parser.parse_args()
    serve(chosen, lambda: Queue(chosen).handle)
