"""The client's event loop calls what waits for descriptors, and its timer no earlier than asked."""

import asyncio
import math
import os
import socket
import subprocess
import sys
from time import monotonic

import pytest
from tests.support.servers.running import running

from torchgauge.serving.client.sending_loop import SendingLoop, connections_of
from torchgauge.serving.client.timer import timer


def run(work, factory=SendingLoop):
    """What a coroutine returns in an event loop; one that hangs fails."""

    async def limited():
        async with asyncio.timeout(5):
            return await work()

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(limited())


def test_asyncio_goes_on_when_a_reader_gives_it_something_to_do():
    async def work():
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        answer = loop.create_future()

        def read():
            answer.set_result(os.read(reading, 9))

        loop.add_reader(reading, read)
        try:
            os.write(writing, b"x")
            begin = monotonic()
            assert await answer == b"x"
            return monotonic() - begin
        finally:
            assert loop.remove_reader(reading)
            assert not loop.remove_reader(reading)
            os.close(reading)
            os.close(writing)

    assert run(work) < 4


def test_a_descriptor_can_be_read_and_written():
    async def work():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            calls, whole = [], loop.create_future()

            def note(name):
                calls.append(name)
                loop.remove_writer(one)
                if set(calls) == {"read", "written"}:
                    loop.remove_reader(one)
                    whole.set_result(None)

            loop.add_reader(one, note, "read")
            loop.add_writer(one, note, "written")
            loop.call_later(0.01, other.send, b"x")
            await whole
            return calls

    assert run(work) == ["written", "read"]


def test_asyncio_keeps_its_own_descriptors():
    async def work():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop().add_reader(writer.get_extra_info("socket").fileno(), print)
        assert await reader.read() == b""
        writer.close()
        server.close()

    run(work)


@pytest.mark.parametrize("factory", [SendingLoop, asyncio.SelectorEventLoop])
def test_a_timer_calls_at_its_moments_and_not_before(factory):
    async def work():
        loop = asyncio.get_running_loop()
        begin = monotonic()
        moments = [begin + 0.002 * number for number in range(1, 80)]
        calls, whole = [], loop.create_future()

        def wake():
            calls.append(monotonic())
            if len(calls) < len(moments):
                waker.wake_at(moments[len(calls)])
            else:
                whole.set_result(None)

        waker = timer(loop, wake)
        waker.wake_at(begin + 9)
        waker.wake_at(moments[0])  # takes the place of the other
        await whole
        waker.close()
        return [call - moment for call, moment in zip(calls, moments, strict=True)]

    assert min(run(work, factory)) >= 0


def test_a_loop_that_sleeps_until_its_moments_reads_between_them():
    async def work():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        begin = monotonic()
        moments = [begin + 0.0009 * number for number in range(1, 200)]
        calls, answers, whole = [], [], loop.create_future()

        def wake():
            calls.append(monotonic())
            other.send(b"x")
            if len(calls) < len(moments):
                waker.wake_at(moments[len(calls)], sleep=True)
            else:
                whole.set_result(None)

        def read():
            answers.append((len(calls), len(one.recv(1000))))

        waker = timer(loop, wake)
        with one, other:
            loop.add_reader(one, read)
            waker.wake_at(moments[0], sleep=True)
            ticks = 0
            while not whole.done():  # asyncio goes on beside it
                await asyncio.sleep(0.01)
                ticks += 1
            await asyncio.sleep(0.001)
            loop.remove_reader(one)
            waker.close()
        return [call - due for call, due in zip(calls, moments, strict=True)], answers, ticks

    late, answers, ticks = run(work)
    assert min(late) >= 0
    assert ticks > 3
    assert sum(size for _, size in answers) == len(late)


class Due:
    """A timer whose moment is soon, and which does not sleep."""

    def __init__(self, soon, events):
        self.soon, self.events = soon, events

    def sleep(self):
        self.events.append("sleep")

    def call(self):
        self.soon = math.inf
        self.events.append("call")


@pytest.mark.parametrize(
    ("seconds", "order"), [(0.5, ["sleep", "read", "call"]), (-0.5, ["sleep", "call", "read"])]
)
def test_what_came_is_read_before_a_moment_and_behind_one_that_has_passed(seconds, order):
    events = []
    loop = SendingLoop()
    reading, writing = os.pipe()
    loop.add_reader(reading, lambda: events.append(os.read(reading, 9) and "read"))
    try:
        os.write(writing, b"x")
        loop.sleep_with(Due(monotonic() + seconds, events))
        loop._direct.select(0.01)
    finally:
        loop.close()
        os.close(reading)
        os.close(writing)
    assert events == order


@pytest.mark.parametrize(
    ("open_files", "connections"), [(64, 43), (80, 54), (1024, 960), (65_536, 65_472), (1, 1)]
)
def test_a_low_limit_of_open_files_is_mostly_for_connections(open_files, connections):
    assert connections_of(open_files) == connections


@pytest.mark.thorough
def test_a_limit_of_open_files_that_lets_requests_wait_is_named():
    """Of 48 files 32 are for connections: 20 of 52 requests wait."""
    program = """
import resource, sys
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
for count in (52, 4):
    load = send(SendPlan(address=parse_address(sys.argv[1]), schedule=[0.0] * count))
    print(load.client.open_files, load.client.waited, set(load.requests.fate))
"""
    with running("faulty_server") as server:
        command = [sys.executable, "-c", program, f"{server.address}/slow/0.3"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == ["48 20 {'done'}", "None 0 {'done'}"]
