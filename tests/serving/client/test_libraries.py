"""Sending by libraries: HTTP/2 and gRPC, at real servers."""

import asyncio
import contextlib
import dataclasses
import json
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest
from tests.support.servers.running import running

import torchgauge as tg
from torchgauge.errors import InputError, MissingExtraError
from torchgauge.records.serving.requests import FATES
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.client import LoadClient
from torchgauge.serving.client.columns import Columns
from torchgauge.serving.client.dialects.every import DIALECTS
from torchgauge.serving.client.grpc_client import GrpcClient, infer_request
from torchgauge.serving.client.http2_client import Http2Client
from torchgauge.serving.client.request_head import HeadOptions, RequestHead
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan
from torchgauge.serving.client.sending_loop import SendingLoop

BODY = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [[1.5, 2.0]]}]}


@pytest.fixture(scope="module")
def http2():
    pytest.importorskip("hypercorn")
    with running("http2_service", libraries=True) as server:
        yield server


@pytest.fixture(scope="module")
def inference():
    pytest.importorskip("tritonclient.grpc")
    with running("grpc_service", libraries=True) as server:
        yield f"grpc://127.0.0.1:{server.port}"


def sent(address, protocol="HTTP/2", **options):
    options = {"schedule": [0.01 * number for number in range(12)], **options}
    return send(SendPlan(address=parse_address(address), protocol=protocol, **options))


def inferred(address, body=BODY, **options):
    return sent(address, "gRPC", items=(json.dumps(body).encode(),), **options)


@pytest.mark.thorough
def test_requests_share_one_connection(http2):
    load = sent(http2.address, items=(b"", b'{"a": 1}'))
    requests = load.requests
    assert set(requests.fate) == {"done"}
    assert (load.version, load.client.connections) == ("HTTP/2", 1)
    assert set(requests.status) == {200}
    assert set(requests.batch) == {3}
    assert requests.service == pytest.approx([0.0045] * 12)
    for row in zip(requests.scheduled, requests.sent, requests.first, requests.last, strict=True):
        assert list(row) == sorted(row)


@pytest.mark.thorough
def test_a_slow_answer_delays_no_other_request(http2):
    load = sent(f"{http2.address}/slow", schedule=[0.0] * 8)
    durations = [
        last - due for last, due in zip(load.requests.last, load.requests.scheduled, strict=True)
    ]
    assert min(durations) >= 0.2
    assert max(durations) < 8 * 0.2  # they do not wait for each other


@pytest.mark.parametrize(
    ("path", "fate"),
    [
        ("/status", "status"),
        pytest.param("/elsewhere", "redirect", marks=pytest.mark.thorough),
        pytest.param("/crash", "status", marks=pytest.mark.thorough),
    ],
)
def test_the_fate_of_each_answer(http2, path, fate):
    load = sent(http2.address + path, schedule=[0.0, 0.01])
    assert load.requests.fate == (fate, fate)


def test_tokens_of_a_stream_are_stamped(http2):
    load = sent(f"{http2.address}/stream", api="openai-chat", schedule=[0.0, 0.01], items=(b"{}",))
    assert load.requests.fate == ("done", "done")
    assert load.requests.chunks == (4, 4)
    assert len(load.requests.gaps) == 6
    assert sum(load.requests.gaps) > 2 * 0.02  # not all at the end of the answer


@pytest.mark.thorough
def test_a_request_that_takes_too_long_is_a_timeout(http2):
    load = sent(f"{http2.address}/slow", schedule=[0.0], timeout=0.05)
    assert load.requests.fate == ("timeout",)


def test_two_that_take_too_long_over_one_connection_are_timeouts(http2):
    load = sent(f"{http2.address}/slow", schedule=[0.0, 0.01], timeout=0.05)
    assert load.requests.fate == ("timeout", "timeout")


class Requests:
    """Two requests, and the fates that are reported of them."""

    def __init__(self):
        self.columns, self.fates = Columns(), {}
        for moment in (0.0, 1.0):
            self.columns.add(moment, 0)

    def ended(self, row, fate, moment, problem=""):
        self.fates[row] = fate + problem

    def served_by(self, software):
        pass


def test_a_timeout_while_a_connection_is_set_up_is_no_fault_of_the_next(http2, monkeypatch):
    http2_connection = pytest.importorskip("httpcore._async.http2").AsyncHTTP2Connection
    requests = Requests()

    async def exchange():
        address = parse_address(http2.address)
        client = Http2Client(
            address, [b""], DIALECTS["json"], RequestHead(address, HeadOptions()), requests
        )
        first = asyncio.ensure_future(client.exchange(0, 0.0))
        original = http2_connection._send_connection_init

        async def initialised(*arguments, **options):
            await original(*arguments, **options)
            first.cancel()

        monkeypatch.setattr(http2_connection, "_send_connection_init", initialised)
        await asyncio.wait([first])
        await client.exchange(1, 0.0)
        await client.close()

    asyncio.run(exchange())
    assert requests.fates == {1: "done"}


def test_the_first_address_that_takes_a_connection_is_used(http2):
    address = dataclasses.replace(parse_address(http2.address), hosts=("127.0.0.2", "127.0.0.1"))
    requests = Requests()

    async def exchange():
        client = Http2Client(
            address, [b""], DIALECTS["json"], RequestHead(address, HeadOptions()), requests
        )
        await client.exchange(0, 0.0)
        await client.close()

    asyncio.run(exchange())
    assert requests.fates == {0: "done"}


@pytest.mark.parametrize(("scheme", "kind"), [("grpc", "insecure"), ("grpcs", "secure")])
def test_grpc_uses_no_proxy_and_an_address_that_listens(http2, monkeypatch, scheme, kind):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tritonclient.grpc")
    channel = mock.Mock()
    monkeypatch.setattr(grpc.aio, f"{kind}_channel", channel)
    address = parse_address(f"{scheme}://127.0.0.1:{http2.port}/m")
    GrpcClient(
        dataclasses.replace(address, hosts=("127.0.0.2", "127.0.0.1")),
        [],
        RequestHead(address, HeadOptions()),
        None,
    )
    (place, *_), options = channel.call_args
    assert place == f"127.0.0.1:{http2.port}"
    assert ("grpc.enable_http_proxy", 0) in options["options"]


SCRIPT = """
import sys
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan

plan = SendPlan(address=parse_address(sys.argv[1]), protocol="HTTP/2", schedule=[0.0])
print(*send(plan).requests.fate)
"""


@pytest.mark.thorough
def test_a_script_with_the_name_of_a_library_is_not_taken_for_it(http2, tmp_path):
    script = tmp_path / "h2.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script, http2.address]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("done\n", "")


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", ["HTTP/2", "gRPC"])
def test_nobody_listens(protocol):
    scheme = "http" if protocol == "HTTP/2" else "grpc"
    load = sent(f"{scheme}://127.0.0.1:9/m", protocol, items=(json.dumps(BODY).encode(),))
    assert set(load.requests.fate) == {"refused"}
    assert load.problems["refused"]


@pytest.mark.thorough
def test_a_server_of_http1_is_no_server_of_http2():
    with running("fifo_server", service=0.001) as server:
        load = sent(server.address, schedule=[0.0, 0.01])
    assert set(load.requests.fate) <= {"protocol", "reset"}


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", ["HTTP/2", "gRPC"])
def test_a_server_that_is_killed_leaves_no_request_without_fate(protocol):
    name = "http2_service" if protocol == "HTTP/2" else "grpc_service"
    with running(name, libraries=True) as server:
        scheme = "http" if protocol == "HTTP/2" else "grpc"
        address = parse_address(f"{scheme}://127.0.0.1:{server.port}/slow")
        plan = SendPlan(
            address=address, protocol=protocol, schedule=[0.01 * n for n in range(200)],
            items=(json.dumps(BODY).encode(),), timeout=5,
        )  # fmt: skip
        progress = _Killing(server)
        load = send(plan, progress)
    assert len(load.requests) == 200
    assert set(load.requests.fate) <= {"done", "reset", "refused", "protocol"}
    assert set(load.requests.fate) != {"done"}


@dataclasses.dataclass
class _Killing:
    """Kills a server when the first report of an answer comes."""

    server: object

    def update(self, detail, *_):
        if " 0 answered" not in detail:
            self.server.kill()


def test_inference_is_asked_for_by_grpc(inference):
    load = inferred(f"{inference}/sum")
    assert set(load.requests.fate) == {"done"}
    assert load.version == "gRPC"


@pytest.mark.thorough
def test_paths_name_model_and_version(inference):
    assert inferred(f"{inference}/v2/models/sum/infer").requests.fate[0] == "done"
    assert inferred(f"{inference}/sum/1").requests.fate[0] == "done"
    with pytest.raises(InputError) as raised:
        inferred(f"{inference}/")
    assert raised.value.id == "address-invalid"


@pytest.mark.thorough
def test_errors_of_grpc_are_answers(inference):
    load = inferred(f"{inference}/absent", schedule=[0.0])
    assert load.requests.fate == ("status",)
    assert "no model absent" in load.problems["status"]
    wrong = {"inputs": [{**BODY["inputs"][0], "shape": [1, 3]}]}
    assert inferred(f"{inference}/sum", wrong, schedule=[0.0]).requests.fate == ("status",)


@pytest.mark.thorough
def test_tokens_are_sent_and_shown_nowhere(inference, http2, monkeypatch):
    monkeypatch.setenv("SECRET_OF_TEST", "secret")
    assert (
        inferred(
            f"{inference}/sum",
            head=HeadOptions(headers=(("Authorization", "Bearer env:SECRET_OF_TEST"),)),
        ).requests.fate[0]
        == "done"
    )
    monkeypatch.setenv("SECRET_OF_TEST", "another")
    load = inferred(
        f"{inference}/sum",
        head=HeadOptions(headers=(("Authorization", "Bearer env:SECRET_OF_TEST"),)),
    )
    assert load.requests.fate[0] == "status"
    assert "another" not in repr(load)
    assert set(
        sent(
            http2.address,
            head=HeadOptions(headers=(("Authorization", "Bearer env:SECRET_OF_TEST"),)),
        ).requests.fate
    ) == {"done"}


@pytest.mark.parametrize(
    "body", [[], {}, {"inputs": [{"name": "x"}]}, {"inputs": [{**BODY["inputs"][0], "shape": "a"}]},
             {"inputs": [{**BODY["inputs"][0], "datatype": "FP16"}]}],
)  # fmt: skip
def test_a_body_that_is_no_request_is_refused(body):
    messages = pytest.importorskip("tritonclient.grpc").service_pb2
    with pytest.raises(InputError) as raised:
        infer_request(messages, json.dumps(body).encode(), "sum")
    assert raised.value.id == "body-invalid"


def test_a_refused_body_ends_the_client(inference):
    with pytest.raises(InputError) as raised:
        inferred(f"{inference}/sum", [])
    assert raised.value.id == "body-invalid"


@pytest.mark.parametrize(("library", "extra"), [("httpcore", "http2"), ("grpc", "grpc")])
def test_an_absent_library_is_named_with_its_extra(library, extra, monkeypatch):
    from torchgauge.serving.client.client import library_client
    from torchgauge.serving.client.dialects.every import dialect_named

    monkeypatch.setitem(sys.modules, library, None)
    protocol = "HTTP/2" if extra == "http2" else "gRPC"
    address = parse_address("http://127.0.0.1:9/m")
    plan = SendPlan(address=address, protocol=protocol, schedule=[0.0])
    with pytest.raises(MissingExtraError, match=f"{library}.* which is not installed") as raised:
        library_client(plan, address, dialect_named("json"), None, None)
    assert f"torchgauge-profiler[{extra}]" in raised.value.remedy


@pytest.mark.thorough
def test_a_record_names_the_protocol(http2, inference, tmp_path):
    serving = tg.measure_serving(http2.address, rate=50, duration=0.5, http2=True)
    assert serving.served_by.version == "HTTP/2"
    body = tmp_path / "body.json"
    body.write_text(json.dumps(BODY))
    serving = tg.measure_serving(f"{inference}/sum", rate=50, duration=0.5, body=body)
    assert serving.served_by.version == "gRPC"
    assert serving.levels[0].fates == {"done": serving.levels[0].count}


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


STATUS_200, OTHER_FIELD = b"\x88", b"\x40\x01a\x01b"  # of HPACK: one of its table, and "a: b"
ANSWER = frame(1, 5, 1, STATUS_200)
VIOLATIONS = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a frame too long": frame(4) + b"\x0f\x00\x00\x00\x00\x00\x00\x00\x01some",
    "no settings first": ANSWER,
    "no header block": frame(4) + frame(1, 4, 1, b"\xff" * 6),
    "no status": frame(4) + frame(1, 5, 1, OTHER_FIELD),
    "data of no stream": frame(4) + frame(0, 0, 0, b"x"),
    "data before a head": frame(4) + frame(0, 1, 1, b"x"),
    "a window of 0": frame(4) + frame(8, 0, 0, bytes(4)),
    "settings of no length": frame(4, 0, 0, b"abc"),
}


@contextlib.contextmanager
def saying(*parts: bytes):
    """Yield the URL of a server that, once asked, says a part each 0.1 s, and stays."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                connection.recv(1 << 16)
                for part in parts:
                    connection.sendall(part)
                    time.sleep(0.1)
                while connection.recv(1 << 16):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def fates_of(url: str, schedule: list[float]) -> tuple[list[str], dict[str, str]]:
    """What becomes of requests by HTTP/2, of this process."""
    plan = SendPlan(address=parse_address(url), protocol="HTTP/2", schedule=schedule, timeout=20.0)

    async def send_all() -> LoadClient:
        client = LoadClient(plan)
        await client.run(time.monotonic())
        return client

    with asyncio.Runner(loop_factory=SendingLoop) as runner:
        client = runner.run(send_all())
    return [FATES[code] for code in client.columns.fate], client.problems


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_of_http2_is_no_timeout(name):
    pytest.importorskip("httpcore")
    with saying(VIOLATIONS[name]) as url:
        fates, problems = fates_of(url, [0.0, 0.0, 0.05])
    assert fates == ["protocol"] * 3
    assert problems["protocol"]


def test_a_violation_fails_all_that_are_on_the_way():
    pytest.importorskip("httpcore")
    many_streams = frame(4, payload=bytes.fromhex("000300000064"))  # 100 at once
    with saying(many_streams, VIOLATIONS["data of no stream"]) as url:
        fates, _ = fates_of(url, [0.0, 0.02, 0.04, 0.06])
    assert fates == ["protocol"] * 4


def test_what_a_server_ends_itself_is_no_violation():
    pytest.importorskip("httpcore")
    reset, away = frame(3, 0, 1, bytes(4)), frame(7, 0, 0, bytes(8))
    for end in (reset, away):
        with saying(frame(4) + end) as url:
            assert fates_of(url, [0.0])[0] == ["reset"]
    with saying(frame(4) + ANSWER) as url:
        assert fates_of(url, [0.0])[0] == ["done"]
