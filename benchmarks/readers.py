"""Time and memory of every reader at three sizes: both grow with the bytes that are read.

    python benchmarks/readers.py [READER ...]

Each line is a file of its own, read in a process of its own: whole files, and those that were made
to take for ever. `per byte` is of what is unpacked; it stays the same where time is linear.
`memory` is what the process took at most beyond what it had before, also as a multiple of the
unpacked bytes.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import pickle
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FACTORS = (1, 4, 16)


def events(count: int) -> bytes:
    """Return a trace of so many operators, three in each other."""
    spans = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::op{n % 50}", "pid": 1, "tid": 1,
         "ts": 1e6 + 10 * (n // 3) + n % 3, "dur": 8 - 2 * (n % 3),
         "args": {"External id": n, "Input Dims": [[4, n % 7]]}}
        for n in range(count)
    ]  # fmt: skip
    return json.dumps({"schemaVersion": 1, "traceEvents": spans}).encode()


def deep(count: int) -> bytes:
    """Return a trace of spans each of which is around the next."""
    spans = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "a",
            "pid": 1,
            "tid": 1,
            "ts": n,
            "dur": 2 * (count - n),
        }
        for n in range(count)
    ]
    return json.dumps({"traceEvents": spans}).encode()


def keys(count: int) -> bytes:
    """Return JSON in which traceEvents stands everywhere but where it should."""
    inner = ",".join(['{"traceEvents":[]}'] * count)
    return b'{"other":[' + inner.encode() + b'],"traceEvents":[]}'


def sequences(count: int) -> bytes:
    """Return an event with a list of so many objects."""
    inner = ",".join(['{"a":1}'] * count)
    return b'{"traceEvents":[{"ph":"X","ts":1,"name":"a","args":{"x":[' + inner.encode() + b"]}}]}"


def members(count: int) -> bytes:
    """Return an archive of so many traces, the last named as the first."""
    import warnings

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in (*range(count - 1), 0):
            archive.writestr(f"{number}.json", b"[]")
    return file.getvalue()


def snapshot(count: int, dump: Callable[[object], bytes]) -> bytes:
    """Return a memory snapshot of so many events."""
    frames = [{"filename": "a.py", "line": 1, "name": "f"}]
    trace = [
        {
            "action": "alloc",
            "addr": 512 * n,
            "size": 512,
            "stream": 0,
            "time_us": n,
            "frames": frames,
        }
        for n in range(count)
    ]
    return dump({"segments": [], "device_traces": [trace]})


def record(count: int) -> bytes:
    """Return a record of a loop whose step has so many operators."""
    sys.path.insert(0, str(ROOT))
    import msgspec
    from tests.support import records

    from torchgauge.records import codec
    from torchgauge.records.timeline.node import TreeRow
    from torchgauge.records.timeline.tree import Tree

    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=5)]
    rows += [
        TreeRow(name=f"aten::op{n % 50}", kind="operator", parent=n // 2, calls=1, host=n)
        for n in range(count)
    ]
    return codec.encode(msgspec.structs.replace(records.profile(), tree=Tree(rows=tuple(rows))))


def history(count: int) -> bytes:
    """Return the file of a history of so many runs."""
    sys.path.insert(0, str(ROOT))
    from tests.support import history_runs as runs

    from torchgauge.history.store import Store

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.db"
        with Store.open(str(file)) as store:
            for day in range(count):
                store.add(runs.run(day, layers={"a": 5}))
            store.shrink()
        return file.read_bytes()


def read_trace(path: Path) -> None:
    """Read a trace."""
    import torchgauge as tg

    tg.read_trace(path)


def read_snapshot(path: Path) -> None:
    """Read a memory snapshot."""
    import torchgauge as tg

    tg.read_snapshot(path)


def load(path: Path) -> None:
    """Read a record."""
    import torchgauge as tg

    tg.load(path)


def read_rules(path: Path) -> None:
    """Read alert rules."""
    from torchgauge.history import rules

    rules.read(path)


def read_history(path: Path) -> None:
    """Read every run of a history."""
    from torchgauge.history.store import Store

    with Store.open(str(path), create=False) as store:
        for _ in store.entries():
            pass


def packed(data: bytes) -> bytes:
    """Return the bytes as gzip."""
    return gzip.compress(data, compresslevel=6, mtime=0)


# By name: the least number of things in the file, what makes it, and what reads it.
READERS: dict[str, tuple[int, Callable[[int], bytes], Callable[[Path], None], str]] = {
    "trace": (20_000, events, read_trace, ".json"),
    "trace, packed": (20_000, lambda n: packed(events(n)), read_trace, ".json.gz"),
    "trace, nested": (2_000, deep, read_trace, ".json"),
    "trace, false keys": (6_250, keys, read_trace, ".json"),
    "trace, one event": (100_000, sequences, read_trace, ".json"),
    "trace, spaces": (1 << 22, lambda n: packed(b" " * n), read_trace, ".json.gz"),
    "archive, a name twice": (250, members, read_trace, ".zip"),
    "snapshot": (20_000, lambda n: snapshot(n, pickle.dumps), read_snapshot, ".pickle"),
    "snapshot, JSON": (
        20_000, lambda n: snapshot(n, lambda one: json.dumps(one).encode()), read_snapshot, ".json",
    ),
    "snapshot, empty sets": (
        1 << 20, lambda n: packed(b"\x80\x04](" + b"\x8f" * n + b"e."), read_snapshot, ".pickle",
    ),
    "record": (5_000, record, load, ".json"),
    "history": (50, history, read_history, ".db"),
    "alert rules": (
        500, lambda n: b'[[threshold]]\nmetric = "flops"\nabove = "1"\n' * n, read_rules, ".toml",
    ),
}  # fmt: skip


def unpacked(data: bytes) -> int:
    """Return the bytes that a file holds."""
    if not data.startswith(b"\x1f\x8b"):
        return len(data)
    return len(zlib.decompress(data, wbits=31))


def child(name: str, path: str) -> None:
    """Read a file and print seconds and bytes; what was to be imported is imported before."""
    from torchgauge.device.counters import watched_resident
    from torchgauge.errors import TorchgaugeError

    count, make, read, suffix = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, f"small{suffix}")
        small.write_bytes(make(min(count, 50)))
        said = "read"
        for file in (small, Path(path)):
            gc.collect()
            begin = time.perf_counter()
            with watched_resident() as process:
                try:
                    read(file)
                except TorchgaugeError as error:
                    said = error.id
            seconds = time.perf_counter() - begin
    memory = (process.peak or 0) - (process.before or 0)
    print(json.dumps({"seconds": seconds, "memory": memory, "said": said}))


def main(names: list[str]) -> None:
    """Print a line for each reader and size."""
    print(f"{'':24}{'file':>10}{'unpacked':>10}{'time':>10}{'per byte':>10}{'memory':>16}")
    for name in names or READERS:
        count, make, _, suffix = READERS[name]
        for factor in FACTORS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"file{suffix}")
                data = make(count * factor)
                path.write_bytes(data)
                done = subprocess.run(
                    [sys.executable, __file__, "--child", name, str(path)],
                    capture_output=True, check=True, text=True,
                )  # fmt: skip
                found, size = json.loads(done.stdout), unpacked(data)
                each = found["seconds"] / size * 1e9
                memory = f"{found['memory'] / 2**20:.0f} MiB {found['memory'] / size:5.1f}×"
                print(
                    f"{name:24}{len(data) / 1e6:7.2f} MB{size / 1e6:7.1f} MB"
                    f"{found['seconds'] * 1e3:7.0f} ms{each:7.1f} ns{memory:>16}  {found['said']}",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(sys.argv[1:])
