"""Clocks and devices whose time the tests decide."""

import contextlib


class FakeClock:
    """Stands still until somebody moves it: a clock of nanoseconds, to be called or asked."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    __call__ = now

    def advance(self, seconds: float) -> None:
        self.time += round(seconds * 1e9)


class FakeGpu:
    """A queue: work is launched at once and is done when somebody synchronizes."""

    name = "cuda:0"
    asynchronous = True

    def current(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.queued = 0.0
        self.flushes = 0
        self.log: list[str] = []

    def launch(self, seconds: float) -> None:
        self.queued += seconds
        self.log.append("launch")

    def synchronize(self) -> None:
        self.clock.advance(self.queued)
        self.queued = 0.0
        self.log.append("synchronize")

    def flush_cache(self) -> None:
        self.flushes += 1
        self.log.append("flush")

    def timer(self) -> "FakeTimer":
        return FakeTimer(self)


class FakeTimer:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.begun = self.ended = 0.0

    def start(self) -> None:
        self.begun = self.gpu.queued

    def stop(self) -> None:
        self.ended = self.gpu.queued

    def elapsed(self) -> float:
        return self.ended - self.begun
