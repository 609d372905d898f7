"""Whatever a server does, every request has one fate, and nothing hangs or crashes."""

import asyncio
import collections
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.servers.running import running

from torchgauge.progress import Silent
from torchgauge.records.serving.requests import FATES
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.client import LoadClient
from torchgauge.serving.client.request_head import HeadOptions
from torchgauge.serving.client.send import SentLoad, send
from torchgauge.serving.client.send_plan import SendPlan
from torchgauge.serving.client.sending_loop import SendingLoop

EXPECTED = {
    "/ok": "done",
    "/two-answers": "done",
    "/status/404": "status",
    "/status/503": "status",
    "/reset": "reset",
    "/close": "reset",
    "/cut": "reset",
    "/cut-head": "reset",
    "/garbage": "protocol",
    "/endless-head": "protocol",
    "/slow": "timeout",
    "/silent": "timeout",
    "/redirect": "status",
    "/redirect/192.0.2.1": "redirect",
}
STREAMED = {
    "/stream": "done",
    "/split-character": "done",
    "/cut-stream": "stream",
    "/cut-character": "reset",
    "/error-in-stream": "stream",
    "/ok": "answer",
}
ASKED = b'{"stream": true}'
# On a busy machine an answer may take a second.
PATIENT = {"timeout": 20.0, "drain": 25.0}


class Midway(Silent):
    """Shows no progress, and does something half a second after sending began to be watched."""

    def __init__(self, act) -> None:
        self._timer = threading.Timer(0.5, act)

    def update(self, detail: str, fraction: float | None = None) -> None:
        if self._timer.ident is None:
            self._timer.start()


def sent(url: str, **options) -> SentLoad:
    """What sending gives; an answer is not waited for longer than a second."""
    limits = {"timeout": 1.0, "drain": 2.0, "items": (ASKED,)}
    return send(SendPlan(address=parse_address(url), **(limits | options)))


@pytest.fixture(scope="module")
def faulty():
    with running("faulty_server", seed=7) as server:
        yield server


def sent_here(url: str, **options) -> LoadClient:
    """Send without a process of the client's own, which takes longer to start than to send."""
    limits = {"timeout": 1.0, "drain": 2.0, "items": (ASKED,)}
    plan = SendPlan(address=parse_address(url), **(limits | options))

    async def send_all() -> LoadClient:
        client = LoadClient(plan)
        await client.run(time.monotonic())
        return client

    with asyncio.Runner(loop_factory=SendingLoop) as runner:
        return runner.run(send_all())


def fates(client: LoadClient) -> list[str]:
    return [FATES[code] for code in client.columns.fate]


@pytest.mark.parametrize("path", EXPECTED)
def test_the_fate_of_each_fault(faulty, path):
    limits = {} if EXPECTED[path] == "timeout" else PATIENT
    client = sent_here(faulty.address + path, schedule=[0.0, 0.0, 0.05], **limits)
    assert fates(client) == [EXPECTED[path]] * 3
    status = 404 if path == "/status/404" else 503 if path == "/status/503" else None
    if status:
        assert client.columns.status.tolist() == [status] * 3


@pytest.mark.parametrize("path", STREAMED)
def test_the_fate_of_each_stream(faulty, path):
    schedule = [0.0, 0.02]
    client = sent_here(faulty.address + path, api="openai-chat", schedule=schedule, **PATIENT)
    assert fates(client) == [STREAMED[path]] * 2


def test_a_client_of_its_own_process_reports_the_same(faulty):
    load = sent(faulty.address + "/status/404", schedule=[0.0, 0.0, 0.05])
    assert load.requests.fate == ("status",) * 3
    assert load.requests.status == (404,) * 3


@pytest.mark.thorough
def test_faults_beside_each_other_each_keep_their_own(faulty):
    schedule = [index * 0.002 for index in range(440)]
    load = sent(faulty.address + "/every", schedule=schedule)
    assert len(load.requests) == 440
    assert set(load.requests.fate) <= set(FATES)
    counts = collections.Counter(load.requests.fate)
    assert counts["redirect"] == 20  # one of 22 faults, by the order of arrival
    assert counts["timeout"] >= 40


@pytest.mark.parametrize(
    ("number", "api"),
    [
        pytest.param(500, "json", marks=pytest.mark.thorough),
        pytest.param(500, "openai-chat", marks=pytest.mark.thorough),
        pytest.param(5000, "json", marks=pytest.mark.slow),
        pytest.param(5000, "openai-chat", marks=pytest.mark.slow),
    ],
)
def test_mutated_answers(faulty, number, api):
    schedule = [index / 1000 for index in range(number)]
    load = sent(faulty.address + "/mutated", api=api, schedule=schedule, in_flight=300)
    requests = load.requests
    assert len(requests) == number
    counts = collections.Counter(requests.fate)
    assert counts["done"] > 0
    assert counts["protocol"] > 0
    assert counts["reset"] > 0
    done = [row for row, fate in enumerate(requests.fate) if fate == "done"]
    assert all(requests.last[row] is not None for row in done)
    assert len(requests.chunks) in (0, number)
    assert len(requests.gaps) == sum(max(chunks - 1, 0) for chunks in requests.chunks)


def test_a_port_that_nobody_listens_on():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        load = sent(f"http://127.0.0.1:{unused.getsockname()[1]}/", schedule=[0.0] * 5)
    assert load.requests.fate == ("refused",) * 5
    assert load.requests.sent == (None,) * 5
    assert "refused" in load.problems["refused"].lower() or "failed" in load.problems["refused"]


@pytest.mark.thorough
def test_users_of_a_server_that_refuses_do_not_spin():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        load = sent(f"http://127.0.0.1:{unused.getsockname()[1]}/", users=2, duration=0.5)
    assert set(load.requests.fate) == {"refused"}
    assert 2 <= len(load.requests) <= 12


@pytest.mark.parametrize(("path", "fate"), [("/status/401", "status"), ("/garbage", "protocol")])
def test_requests_that_all_fail_alike_end_the_load(faulty, path, fate):
    client = sent_here(faulty.address + path, schedule=[index * 0.005 for index in range(60)])
    assert client.failed_alike
    counts = collections.Counter(fates(client))
    assert counts[fate] == 20
    assert sum(counts.values()) < 60
    if fate == "status":
        assert client.problems["status"] == '{"error": {"message": "as asked"}}'


@pytest.mark.parametrize("path", ["/ok", "/silent"])
def test_requests_that_succeed_or_wait_do_not_end_the_load(faulty, path):
    client = sent_here(faulty.address + path, schedule=[0.0] * 30, timeout=0.2)
    assert not client.failed_alike
    assert len(client.columns) == 30


def test_an_answer_among_errors_lets_the_load_go_on():
    """The third of 30 connections is answered as it should be."""
    answers = iter([b"HTTP/1.1 503 X", b"HTTP/1.1 503 X", b"HTTP/1.1 200 OK"])
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_all() -> None:
        for _ in range(30):
            connection, _ = listener.accept()
            connection.recv(1000)
            head = next(answers, b"HTTP/1.1 503 X")
            connection.sendall(head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            connection.close()

    with listener:
        threading.Thread(target=answer_all, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        client = sent_here(url, schedule=[index * 0.01 for index in range(30)])
    assert collections.Counter(fates(client)) == {"status": 29, "done": 1}
    assert not client.failed_alike


def test_the_text_of_an_error_s_body_has_no_part_of_the_token(monkeypatch):
    secret = "sk-0123456789abcdef"
    monkeypatch.setenv("MODEL_TOKEN", secret)
    body = b"x" * 290 + secret.encode() + b" \x1b[31m" + b"y" * 9000
    head = b"HTTP/1.1 401 X\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n"
    with answering(head + body, connections=1) as port:
        url = f"http://127.0.0.1:{port}/"
        client = sent_here(
            url,
            schedule=[0.0],
            head=HeadOptions(headers=(("Authorization", "Bearer env:MODEL_TOKEN"),)),
        )
    assert client.problems["status"] == "x" * 290 + "<MODEL_TOK"


@pytest.mark.slow
def test_a_server_that_is_killed():
    schedule = [index * 0.01 for index in range(300)]
    with running("fifo_server", service=0.001) as server:
        plan = SendPlan(address=parse_address(server.address), schedule=schedule, timeout=1.0)
        load = send(plan, Midway(server.kill))
    counts = collections.Counter(load.requests.fate)
    assert len(load.requests) == 300
    assert set(counts) <= {"done", "reset", "refused", "timeout"}
    assert counts["done"] > 0
    assert counts["refused"] > 0


@contextlib.contextmanager
def answering(answer, connections):
    """Yield the port of a server that answers the first bytes of each connection, and closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_all() -> None:
        for _ in range(connections):
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(answer)
            connection.close()

    with listener:
        threading.Thread(target=answer_all, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_server_without_tls():
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n", connections=2) as port:
        load = sent(f"https://127.0.0.1:{port}/", schedule=[0.0, 0.0])
    assert load.requests.fate == ("tls", "tls")
    assert load.requests.sent == (None, None)


def test_a_server_that_never_shakes_hands():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        client = sent_here(url, schedule=[0.0, 0.01], timeout=0.1)
    assert fates(client) == ["timeout", "timeout"]
    assert "TLS" in client.problems["timeout"]


def test_a_server_that_answers_before_a_large_body_is_sent():
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"
    with answering(answer, connections=4) as port:
        url = f"http://127.0.0.1:{port}/"
        client = sent_here(url, schedule=[0.0, 0.01, 0.02, 0.03], items=(bytes(6_000_000),))
    assert fates(client) == ["status"] * 4
    assert client.columns.status.tolist() == [413] * 4


@pytest.mark.thorough
def test_a_certificate_that_nobody_vouches_for(tmp_path):
    server = _TlsServer(tmp_path)
    with server as port:
        load = sent(f"https://127.0.0.1:{port}/", schedule=[0.0, 0.0])
    assert load.requests.fate == ("tls", "tls")
    assert "certificate" in load.problems["tls"].lower()


def test_no_descriptor_left(faulty):
    plan = SendPlan(
        address=parse_address(faulty.address + "/silent"),
        items=(ASKED,), schedule=[0.0] * 40, timeout=0.5, drain=1.0,
    )  # fmt: skip

    async def starved() -> LoadClient:
        client = LoadClient(plan)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_now = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 10, hard))
        try:
            await client.run(time.monotonic())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return client

    counts = collections.Counter(fates(asyncio.run(starved())))
    assert sum(counts.values()) == 40
    assert counts["local"] >= 20
    assert counts["timeout"] >= 1


@pytest.mark.thorough
def test_ports_used_up():
    """In a network of its own with ten ports, the eleventh connection has none."""
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        sys.executable,
        "-c",
        FEW_PORTS,
        ".",
    ]
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if child.returncode == 77 or "unshare" in child.stderr:
        pytest.skip("no network of its own can be made here")
    assert json.loads(child.stdout) == {"local": 20, "timeout": 10}, child.stderr


FEW_PORTS = """
import collections, fcntl, json, socket, struct, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.servers.running import running
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 1 | 64))  # up, running
    with running("faulty_server") as server:
        Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40009")
        plan = SendPlan(
            address=parse_address(server.address + "/silent"), schedule=[0.0] * 30, timeout=1.0
        )
        print(json.dumps(collections.Counter(send(plan).requests.fate), sort_keys=True))
except PermissionError:
    sys.exit(77)
"""


class _TlsServer:
    """TLS with a certificate that it signed itself; skipped where no openssl makes one."""

    def __init__(self, folder: Path) -> None:
        import shutil
        import ssl

        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
             "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
             str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self.certificate = certificate

    def __enter__(self) -> int:
        self._loop = asyncio.new_event_loop()
        ready: list[int] = []

        async def serve(reader, writer) -> None:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(len(ASKED))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        async def start() -> int:
            server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self._context)
            return server.sockets[0].getsockname()[1]

        self._loop.set_exception_handler(lambda *_: None)
        ready.append(self._loop.run_until_complete(start()))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return ready[0]

    def __exit__(self, *_) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@pytest.mark.thorough
def test_tls_that_is_trusted(tmp_path, monkeypatch):
    server = _TlsServer(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    with server as port:
        load = sent(f"https://localhost:{port}/", schedule=[0.0, 0.1, 0.2])
        named_otherwise = set(load.requests.fate)
        load = sent(f"https://127.0.0.1:{port}/", schedule=[0.0, 0.1, 0.2])
    assert named_otherwise == {"tls"}  # the certificate is another name's
    assert load.requests.fate == ("done",) * 3


@pytest.mark.thorough
def test_ctrl_c_keeps_what_was_measured(faulty):
    schedule = [index * 0.01 for index in range(6000)]
    plan = SendPlan(address=parse_address(faulty.address + "/ok"), schedule=schedule, processes=2)
    load = send(plan, Midway(lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert load.interrupted
    assert 0 < len(load.requests) < 6000
    assert set(load.requests.fate) <= {"done", "unfinished", "unsent"}
    assert max(load.requests.scheduled) <= load.seconds


@pytest.mark.thorough
def test_ctrl_c_at_a_terminal_reaches_the_clients_too(faulty):
    child = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, faulty.address + "/ok", "."],
        stdout=subprocess.PIPE, start_new_session=True, text=True,
    )  # fmt: skip
    child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    interrupted, number = json.loads(output.splitlines()[-1])
    assert interrupted
    assert 0 < number < 6000


AT_A_TERMINAL = """
import json, sys
sys.path.insert(0, sys.argv[2])
from torchgauge.progress import Silent
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan
class Shown(Silent):
    def update(self, detail, fraction=None):
        print("sending", flush=True)
schedule = [index * 0.01 for index in range(6000)]
load = send(SendPlan(address=parse_address(sys.argv[1]), schedule=schedule), Shown())
print(json.dumps([load.interrupted, len(load.requests)]))
"""
