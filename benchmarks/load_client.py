"""What sending costs, and how late requests are: this client beside others, in turn.

    python benchmarks/load_client.py [--rounds 5] [--rates 1000,5000,10000] [--seconds 3]
        [--peers PYTHON] [--aiperf PROGRAM] [--guidellm PROGRAM] [--tokenizer FOLDER]

The server is `load_server.c`, which a C compiler makes; it has the last core to itself, and each
client the first. Every client sends the same Poisson schedule in an open loop. Beside them is a
process that sends nothing and does not sleep: how late it reads its clock is what the machine
itself costs, below which no client can be. Late is from when a
request was due until its bytes were given to the socket; CPU is that of the client's process while
it sends. PYTHON has aiohttp and httpx, each of which starts a task per request at its moment by
the same timer as ours. AIPerf and guidellm are whole programs: of them counts the CPU of all their
processes, by the difference of a long and a short run, so that starting is not counted, and
likewise of ours; the server is then `language_server` of tests/support with 4 tokens an answer,
streamed. TOKENIZER is a local folder for guidellm; AIPerf 0.13 takes none, but the name of one that
lies in Hugging Face's cache (HF_HOME). Best of the rounds, since whatever else runs on a machine
can only add.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
Row = dict[str, float]
RATES_OF_PEERS = {"httpx": 300.0, "aiohttp": 2000.0}  # beyond these they only fall behind
PROGRAM_RATE = 50.0
FEW, MANY = 50, 1050  # requests of a program
GUIDELLM_BACKEND = "validate_backend=false,request_format=/v1/completions"


def poisson(rate: float, seconds: float) -> list[float]:
    """Return a Poisson schedule."""
    numbers, moment, schedule = random.Random(0), 0.0, []
    while (moment := moment + numbers.expovariate(rate)) < seconds:
        schedule.append(moment)
    return schedule


def own(url: str, rate: float, seconds: float) -> Row:
    """Send with this client."""
    from torchgauge.serving.client.address import parse_address
    from torchgauge.serving.client.client import LoadClient
    from torchgauge.serving.client.send_plan import SendPlan
    from torchgauge.serving.client.sending_loop import SendingLoop

    plan = SendPlan(address=parse_address(url), schedule=poisson(rate, seconds))

    async def main() -> Row:
        import gc

        client = LoadClient(plan)
        gc.collect()
        gc.freeze()
        cpu = time.process_time()
        await client.run(time.monotonic() + 0.02)
        return row(list(client.columns.lateness), time.process_time() - cpu)

    with asyncio.Runner(loop_factory=SendingLoop) as runner:
        return runner.run(main())


def clock(rate: float, seconds: float) -> Row:
    """Do nothing but read the clock until each moment of the schedule."""
    late, cpu, begin = [], time.process_time(), time.monotonic() + 0.02
    for moment in poisson(rate, seconds):
        while (now := time.monotonic()) < begin + moment:
            pass
        late.append(now - begin - moment)
    return row(late, time.process_time() - cpu)


def peer(name: str, url: str, rate: float, seconds: float) -> Row:
    """Send with aiohttp or httpx: a task for each request, begun when it is due."""

    async def main() -> Row:
        timer = _timer_type()(asyncio.get_running_loop())
        request, close = await PEERS[name](url)
        late: list[float] = []
        schedule = poisson(rate, seconds)
        cpu, begin = time.process_time(), time.monotonic() + 0.02
        tasks = []
        for moment in schedule:
            if begin + moment > time.monotonic():
                await timer.until(begin + moment)
            tasks.append(asyncio.ensure_future(request(begin + moment, late)))
        await asyncio.wait(tasks, timeout=60)
        figures = row(late, time.process_time() - cpu)
        await close()
        return figures

    return asyncio.run(main())


def _timer_type() -> Any:
    sys.path.insert(0, str(ROOT / "tests/support/servers"))
    from precise_timer import PreciseTimer

    original = PreciseTimer.__init__
    return type("Timer", (PreciseTimer,), {"__init__": lambda self, _loop: original(self)})


async def aiohttp_client(url: str) -> tuple[Callable[..., Awaitable[None]], Any]:
    """Return what sends a request with aiohttp, and what ends the client."""
    import aiohttp

    trace = aiohttp.TraceConfig()

    async def sent(_session: Any, context: Any, _parameters: Any) -> None:
        context.trace_request_ctx()

    trace.on_request_headers_sent.append(sent)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trace_configs=[trace])

    async def request(due: float, late: list[float]) -> None:
        def mark() -> None:
            late.append(time.monotonic() - due)

        async with session.get(url, trace_request_ctx=mark) as answer:
            await answer.read()

    return request, session.close


async def httpx_client(url: str) -> tuple[Callable[..., Awaitable[None]], Any]:
    """Return what sends a request with httpx, and what ends the client."""
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx.AsyncClient(limits=limits, timeout=60, trust_env=False)

    async def request(due: float, late: list[float]) -> None:
        async def mark(name: str, _info: Any) -> None:
            if name == "http11.send_request_headers.complete":
                late.append(time.monotonic() - due)

        await client.get(url, extensions={"trace": mark})

    return request, client.aclose


PEERS = {"aiohttp": aiohttp_client, "httpx": httpx_client}


def row(late: list[float], cpu: float) -> Row:
    """Return the figures of a run."""
    late = sorted(late)
    middle, high = (late[math.ceil(share * len(late)) - 1] for share in (0.5, 0.99))
    return {"cpu": cpu / len(late), "p50": middle, "p99": high}


def in_process(python: str, name: str, url: str, rate: float, seconds: float) -> Row:
    """Run one client in a process of its own."""
    command = [python, __file__, "--run", name, url, str(rate), str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@contextlib.contextmanager
def cheap_server(*arguments: str) -> Iterator[str]:
    """Compile and run the server on the last core, and return its URL."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/load_server"
        source = str(Path(__file__).with_name("load_server.c"))
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        pipe = subprocess.PIPE
        with subprocess.Popen([program, *arguments], stdin=pipe, stdout=pipe, text=True) as server:
            os.sched_setaffinity(server.pid, [max(os.sched_getaffinity(0))])
            assert server.stdin is not None and server.stdout is not None  # noqa: PT018
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
            server.stdin.close()


def compare_clients(options: argparse.Namespace) -> None:
    """Print a line for each client and rate."""
    rates = [float(rate) for rate in options.rates.split(",")]
    cells = [
        (sys.executable, name, rate) for rate in rates for name in ("clock alone", "torchgauge")
    ]
    if options.peers:
        cells += [(sys.executable, "torchgauge", rate) for rate in RATES_OF_PEERS.values()]
        cells += [(options.peers, name, rate) for name, rate in RATES_OF_PEERS.items()]
    results: dict[tuple[str, float], list[Row]] = {}
    with cheap_server() as url:
        for _ in range(options.rounds):
            for python, name, rate in dict.fromkeys(cells):
                figures = in_process(python, name, url, rate, options.seconds)
                results.setdefault((name, rate), []).append(figures)
    print(f"best of {options.rounds} rounds; load average {os.getloadavg()[0]:.1f}")
    for (name, rate), rows in results.items():
        cpu, middle, high = (min(r[key] for r in rows) * 1e6 for key in ("cpu", "p50", "p99"))
        print(
            f"{name:12} {rate:8,.0f}/s  CPU {cpu:7.1f} µs a request, {1e6 / cpu:8,.0f} requests "
            f"per CPU second; late p50 {middle:7.0f}, p99 {high:9.0f} µs"
        )


def program_cpu(command: Callable[[str, int, str], list[str]], rounds: int) -> float:
    """Return the CPU seconds of a request, of all processes that a program starts.

    What the program's start costs is what the fewer requests took beyond their share; it varies by
    as much as hundreds of requests, so that the least of all rounds counts.
    """
    from tests.support.servers.running import running

    used: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(rounds):
        for number, seconds in used.items():
            with (
                tempfile.TemporaryDirectory() as folder,
                running("language_server", ttft=0.005, itl=0.002, lanes=64) as server,
            ):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                done = subprocess.run(
                    command(server.address, number, folder),
                    capture_output=True, text=True, timeout=300, cwd=folder,
                    env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
                )  # fmt: skip
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if done.returncode or len(server.log()) != number:
                    raise SystemExit(f"{len(server.log())} of {number} requests: {done.stderr}")
                seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (min(used[MANY]) - min(used[FEW])) / (MANY - FEW)


def compare_programs(options: argparse.Namespace) -> None:
    """Print a line for each program."""

    def ours(url: str, number: int, _folder: str) -> list[str]:
        return [sys.executable, __file__, "--run", "stream", url, str(number), "0"]

    def aiperf(url: str, number: int, folder: str) -> list[str]:
        return [
            *(options.aiperf, "profile", "--model", "stub", "--url", url),
            *("--endpoint-type", "chat"),
            *("--streaming", "--request-rate", str(PROGRAM_RATE), "--request-count", str(number)),
            *("--isl", "16", "--osl", "4", "--tokenizer", options.tokenizer, "--ui", "none"),
            *("--artifact-dir", folder),
        ]

    def guidellm(url: str, number: int, folder: str) -> list[str]:
        return [
            *(options.guidellm, "run", "--profile", f"kind=poisson,rate={PROGRAM_RATE}"),
            *("--backend", f"kind=openai_http,target={url},model=stub,{GUIDELLM_BACKEND}"),
            *("--constraint", f"kind=max_requests,count={number}"),
            *("--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=4"),
            *("--tokenizer", f"kind=hf_auto,model={options.tokenizer}"),
            *("--output", f"kind=json,path={folder}/report.json"),
        ]

    for name, command in (("torchgauge", ours), ("aiperf", aiperf), ("guidellm", guidellm)):
        if name == "torchgauge" or getattr(options, name):
            cpu = program_cpu(command, options.rounds) * 1e6
            print(f"{name:12} {PROGRAM_RATE:.0f} streams/s  CPU {cpu:9,.0f} µs a request")


def stream(url: str, number: int) -> None:
    """Send streamed chats with this client."""
    from torchgauge.serving.client.address import parse_address
    from torchgauge.serving.client.dialects.every import DIALECTS
    from torchgauge.serving.client.send import send
    from torchgauge.serving.client.send_plan import SendPlan
    from torchgauge.serving.load_inputs import made_up_prompts

    chat = DIALECTS["openai-chat"]
    items = tuple(chat.body(prompt, "stub") for prompt in made_up_prompts(16, 4))
    schedule = poisson(PROGRAM_RATE, 2 * number / PROGRAM_RATE)[:number]
    plan = SendPlan(address=parse_address(url), api=chat.name, items=items, schedule=schedule)
    if set(send(plan).requests.fate) != {"done"}:
        raise SystemExit("requests failed")


def main() -> None:
    """Compare, or be one of those that are compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=4, metavar=("CLIENT", "URL", "RATE", "SECONDS"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rates", default="1000,5000,10000")
    parser.add_argument("--seconds", type=float, default=3.0)
    for name in ("peers", "aiperf", "guidellm", "tokenizer"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args()
    if options.run is None:
        compare_clients(options)
        if options.aiperf or options.guidellm:
            compare_programs(options)
        return
    name, url, rate, seconds = options.run
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    if name == "stream":
        stream(url, int(rate))
    elif name == "clock alone":
        print(json.dumps(clock(float(rate), float(seconds))))
    elif name in PEERS:
        print(json.dumps(peer(name, url, float(rate), float(seconds))))
    else:
        print(json.dumps(own(url, float(rate), float(seconds))))


if __name__ == "__main__":
    main()
