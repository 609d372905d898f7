"""Files of ExecuTorch that were damaged, or made to do harm: a result or a clear error for each.

    python -m benchmarks.executorch_hostile [--count 2000] [--begin 0]

Mutations of a program, of an ETDump and of the texts in an ETRecord, read as `torchgauge count` and
`torchgauge trace` read them, each with its time; then the special cases, with the memory that
Python allocates relative to the file.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path

import msgspec
from tests.support import executorch_files

from torchgauge.analyze.executorch.program_graph import program_graph
from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.analyze.onnx.node_tree import TimedNode, node_rows
from torchgauge.analyze.onnx.node_work import graph_cost
from torchgauge.errors import InputError
from torchgauge.readers.dialects.etdump import as_kineto
from torchgauge.readers.executorch.lowering_file import read_lowering
from torchgauge.readers.executorch.program_file import read_method

SEEDS = ("portable", "delegated", "dynamic")
WORDS = (
    b'"as_int": 1e999',
    b'"as_int": -1',
    b'"dtype": 0',
    b"[" * 50,
    b"[]",
    b"{}",
    b"null",
    b"9" * 30,
)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes with up to five changes: other bytes, a part that is cut or repeated."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at, size = draw.randrange(len(changed) or 1), draw.choice((1, 4, 8, 64))
        kind = draw.randrange(5)
        if kind == 0:
            changed[at : at + size] = draw.randbytes(size)
        elif kind == 1:
            changed[at : at + 1] = draw.choice((b"\0", b"\1", b"\x7f", b"\xff"))
        elif kind == 2:
            changed[at:at] = changed[at : at + size] * draw.choice((1, 10))
        elif kind == 3:
            changed[at : at + size] = draw.choice(WORDS)
        else:
            del changed[at : at + size]
    return bytes(changed)


def mutated_record(source: Path, target: Path, draw: random.Random) -> None:
    """Write the record with a change of one of its texts."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as changed:
        chosen = draw.choice(archive.namelist())
        for name in archive.namelist():
            text = archive.read(name)
            changed.writestr(name, mutated(text, draw) if name == chosen else text)


def counted(program: Path, record: Path) -> None:
    """Do what count and profile do with a program and its record. Raises InputError."""
    method = read_method(program)
    lowering = read_lowering(record, method.name) if record.exists() else None
    graph = program_graph(program, method, lowering)
    nodes = [TimedNode("x", 1.0, layer=node.layer) for node in graph.nodes]
    msgspec.json.encode((graph_cost(graph), graph_size(graph), node_rows(graph, nodes, 0.0)))


def outcome(program: Path, record: Path) -> str:
    """Return what became of a program and its record."""
    try:
        counted(program, record)
    except InputError as error:
        return f"error {error.id}"
    return "result"


def traced(data: bytes) -> str:
    """Return what became of an ETDump."""
    try:
        msgspec.json.decode(as_kineto(data))
    except ValueError:
        return "error trace-malformed"
    return "result"


def mutants(folder: Path, count: int, begin: int) -> None:
    """Print how many of the mutated files had which outcome."""
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for number in range(begin, begin + count):
        draw, name = random.Random(number), SEEDS[number % len(SEEDS)]
        program, record = folder / "model.pte", folder / "model.etrecord"
        program.write_bytes(executorch_files.path(f"{name}.pte").read_bytes())
        record.write_bytes(executorch_files.path(f"{name}.etrecord").read_bytes())
        start = time.perf_counter()
        if number % 2:
            mutated_record(executorch_files.path(f"{name}.etrecord"), record, draw)
        else:
            program.write_bytes(mutated(program.read_bytes(), draw))
        outcomes[f"program and record: {outcome(program, record)}"] += 1
        dump = executorch_files.path("delegated.etdp" if number % 2 else "portable.etdp")
        outcomes[f"dump: {traced(mutated(dump.read_bytes(), draw))}"] += 1
        slowest = max(slowest, time.perf_counter() - start)
    print(f"{count} files each, slowest {slowest:.2f} s")
    for name, times in outcomes.most_common():
        print(f"{times:6} {name}")


def special(folder: Path) -> None:
    """Print what becomes of the files that were made to do harm."""
    program, record = folder / "harm.pte", folder / "harm.etrecord"
    programs = executorch_files.hostile_programs()
    records = executorch_files.hostile_records(record)
    for name in (*programs, *records):
        record.unlink(missing_ok=True)
        if name in programs:
            program.write_bytes(programs[name]())
        else:
            program.write_bytes(executorch_files.path("portable.pte").read_bytes())
        if name in records:
            records[name]()
        size = sum(path.stat().st_size for path in (program, record) if path.exists())
        tracemalloc.start()
        start = time.perf_counter()
        ended = outcome(program, record)
        seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{name[:40]:40} {size:9,} B {seconds:5.2f} s {peak / size:5.1f} x  {ended}")


def main() -> None:
    """Print the outcomes of the mutated files, then of the special cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--begin", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mutants(Path(folder), options.count, options.begin)
        special(Path(folder))


if __name__ == "__main__":
    main()
