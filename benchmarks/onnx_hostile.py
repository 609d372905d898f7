"""ONNX files that were damaged, or made to do harm: a result or a clear error for each.

    python -m benchmarks.onnx_hostile [--count 2000] [--begin 0] [--profiled 0]

Mutations of five small models: bytes changed, removed, added, repeated, the file cut off, and
fields changed so that the file stays readable. Each is read as `torchgauge count` reads it, in a
process of its own under the same limits, but forked from one that has imported onnx, which is much
faster. The special cases go through the command's own path. What is opened outside the folder of
the file is seen by inotify.

With `--profiled 100` so many of the files that read without error are also opened and run by
`torchgauge profile FILE --quick`, each in a process of its own: its outcome is a record, an error
with its id, a killed child that the error names, or a crash or a hang of the command itself.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from google.protobuf.message import Message
from onnx import ModelProto
from tests.support import onnx_files

from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.node_work import graph_cost, with_work
from torchgauge.errors import TorchgaugeError
from torchgauge.readers.onnx.onnx_file import MEMORY_BASE, MEMORY_TIMES, answered, read_graph
from torchgauge.records.finding import Answer
from torchgauge.records.onnx.graph import Graph

OPENED = 0x20  # IN_OPEN
SECONDS = 60
PROFILE_SECONDS = 120
ERROR_ID = re.compile(rb"^torchgauge: error: .*\[([a-z0-9-]+)\]", re.M)


def seeds() -> list[bytes]:
    """Return the models that are mutated."""
    models = (
        onnx_files.convolutional(),
        onnx_files.loop(5, depth=3),
        onnx_files.nested_functions(3, 3),
        onnx_files.external("weights.bin"),
        onnx_files.computed_size("Expand"),
    )
    return [model.SerializeToString() for model in models]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return the file with a change of its bytes, or one to four of the fields that it has."""
    if draw.random() < 0.5:
        model = ModelProto.FromString(data)
        for _ in range(draw.randint(1, 4)):
            _change_field(model, draw)
        return model.SerializeToString()
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(changed) or 1)
        size = min(draw.choice((1, 1, 2, 8, 64)), len(changed) - at)
        kind = draw.choice(("flip", "flip", "flip", "set", "cut", "insert", "repeat", "end"))
        if kind == "flip" and changed:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == "set":
            changed[at : at + size] = draw.randbytes(size)
        elif kind == "cut":
            del changed[at : at + size]
        elif kind == "insert":
            changed[at:at] = draw.randbytes(size)
        elif kind == "repeat":
            changed[at:at] = changed[at : at + size] * draw.choice((1, 10, 100))
        elif kind == "end":
            del changed[at:]
    return bytes(changed)


def _change_field(message: Message, draw: random.Random) -> None:
    """Change a field of the message, or of one that it holds, at random."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = draw.choice(fields)
    repeated = not isinstance(value, Message | int | float | str | bytes)
    if repeated and draw.random() < 0.2:
        at = draw.randrange(len(value))
        if draw.random() < 0.5:
            del value[at]
        elif isinstance(value[0], Message):
            value.add().CopyFrom(value[at])
        else:
            value.append(value[at])
    elif repeated and isinstance(value[0], Message):
        _change_field(draw.choice(value), draw)
    elif isinstance(value, Message):
        _change_field(value, draw)
    elif repeated:
        with contextlib.suppress(ValueError, TypeError):
            value[draw.randrange(len(value))] = _other(value[0], draw)
    else:
        with contextlib.suppress(ValueError, TypeError):  # out of the field's range
            setattr(message, field.name, _other(value, draw))


def _other(value: object, draw: random.Random) -> object:
    """Return another value of the same type."""
    if isinstance(value, bool | int):
        return draw.choice((0, 1, 2, 3, 7, 31, 1000, 2**20, 2**31 - 1, -1, -(2**31)))
    if isinstance(value, float):
        return draw.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if isinstance(value, bytes):
        return draw.randbytes(draw.choice((0, 1, 8, 64)))
    return draw.choice(("", "x", "y", "a", "w", "Loop", "MatMul", "Reshape", "\x1b[31m", "é" * 50))


def analysed(graph: Graph) -> str:
    """Do what count does with the graph; it may not raise."""
    graph = with_work(with_layers(graph))
    cost, size = graph_cost(graph), graph_size(graph)
    msgspec.json.encode((graph, cost, size))
    return "result, at least" if cost.at_least else "result"


def outcome_of(path: Path) -> str:
    """Return what became of a file in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        limit = MEMORY_BASE + MEMORY_TIMES * path.stat().st_size
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(SECONDS)
        question = {"file": str(path), "shapes": {}, "positional": [], "batch": None}
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answered(question))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    try:
        answer = msgspec.msgpack.decode(data, type=Answer[Graph])
    except msgspec.MsgspecError:
        return f"error onnx-unreadable (process ended: {os.waitstatus_to_exitcode(status)})"
    if answer.failure is not None:
        return f"error {answer.failure.id}"
    return analysed(answer.result())


class Watch:
    """Counts how often files are opened, by inotify."""

    def __init__(self, *paths: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._number = library.inotify_init1(os.O_NONBLOCK)
        for path in paths:
            library.inotify_add_watch(self._number, os.fsencode(path), OPENED)

    def opened(self) -> int:
        """Return how often since the last time."""
        count = 0
        try:
            data = os.read(self._number, 1 << 20)
        except BlockingIOError:
            return 0
        while data:
            (length,) = struct.unpack_from("12xI", data)
            data = data[16 + length :]
            count += 1
        return count


def special(folder: Path, watch: Watch) -> None:
    """Print what becomes of the models that were made to do harm, by the command's own path."""
    cases = {**onnx_files.hostile(), **dict(onnx_files.outside(folder))}
    watch.opened()
    for name, make in cases.items():
        path = folder / "model.onnx"
        path.write_bytes(make().SerializeToString())
        start = time.perf_counter()
        try:
            outcome = analysed(read_graph(path))
        except TorchgaugeError as error:
            outcome = f"error {error.id}: {error.cause}"
        seconds = time.perf_counter() - start
        print(f"{name[:40]:40} {seconds:5.1f} s  {outcome[:110]}  opened {watch.opened()}")


def profiled(path: Path) -> str:
    """Return what became of a file that `torchgauge profile` opens and runs."""
    command = [sys.executable, "-m", "torchgauge", "profile", str(path), "--quick", "--no-roofs",
               "--detail", "summary", "--json"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROFILE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "HANG of the caller"
    error = ERROR_ID.search(done.stderr)
    if error is not None and done.returncode > 0:
        return f"error {error[1].decode()}"
    if done.stdout.startswith(b"{") and done.returncode in (0, 1):
        return "record" if done.returncode == 0 else "record, the call failed"
    return f"CRASH of the caller ({done.returncode})"


def main() -> None:
    """Print how many of the mutated files had which outcome, then the special cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--profiled", type=int, default=0)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "models")
        folder.mkdir()
        secret = Path(top, "secret.bin")
        secret.write_bytes(bytes(64))
        (folder / "weights.bin").write_bytes(bytes(64))
        watch, originals = Watch(secret), seeds()
        for number in range(options.begin, options.begin + options.count):
            draw = random.Random(number)
            path = folder / "model.onnx"
            path.write_bytes(mutated(originals[number % len(originals)], draw))
            start = time.perf_counter()
            outcome = outcome_of(path)
            outcomes[outcome] += 1
            slowest = max(slowest, time.perf_counter() - start)
            if outcome.startswith("result") and runs.total() < options.profiled:
                runs[profiled(path)] += 1
        opened = watch.opened()
        print(f"{sum(outcomes.values())} files, slowest {slowest:.1f} s, opened outside {opened}")
        for outcome, count in outcomes.most_common():
            print(f"{count:6} {outcome}")
        for outcome, count in runs.most_common():
            print(f"{count:6} profiled: {outcome}")
        special(folder, watch)


if __name__ == "__main__":
    main()
