"""Write a large trace from a real one: its events again and again, each time later.

    python benchmarks/traces_grown.py SOURCE FILE --size GB

Times go on, correlations, ids and steps get new numbers, so that nothing of one round belongs to
another. All else, and the text's own layout, stays.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
# Numbers by which events of one round know each other.
_OWN = (b"correlation", b"External id", b"Ev Idx", b"id", b"Sequence number")
_NUMBERS = re.compile(
    rb'"(?P<key>ts|' + b"|".join(_OWN) + rb')":\s*(?P<number>\d+)|(?P<step>ProfilerStep#)(?P<n>\d+)'
)


def grow(source: Path, file: Path, size: int) -> int:
    """Write at least `size` bytes to `file`; return the number of rounds."""
    opened = gzip.open if source.name.endswith(".gz") else open
    with opened(source, "rb") as original:
        text: bytes = original.read()
    array = _EVENTS.search(text)
    assert array is not None
    head = text[: array.end()]
    last = text.rindex(b'"ph"')
    end = text.index(b"]", _closing(text, last))
    events, tail = text[array.end() : end], text[end:]
    span, most, steps = _extent(events)
    rounds = 0
    with file.open("wb") as out:
        out.write(head)
        while rounds == 0 or out.tell() < size:
            if rounds:
                out.write(b",")
            out.write(_later(events, rounds, span, most, steps))
            rounds += 1
        out.write(tail)
    return rounds


def _closing(text: bytes, start: int) -> int:
    """Return where the object around `start` ends, braces of its arguments included."""
    depth = 1
    for place in re.finditer(rb"[{}]", text[start:]):
        depth += 1 if place[0] == b"{" else -1
        if not depth:
            return start + place.end()
    raise ValueError("the last event has no end")


def _extent(events: bytes) -> tuple[int, int, int]:
    """Return the µs from the first event to the last, the largest number, and the steps."""
    found = list(_NUMBERS.finditer(events))
    times = [int(one["number"]) for one in found if one["key"] == b"ts" and one["number"] != b"0"]
    numbers = [int(one["number"]) for one in found if one["key"] in _OWN]
    steps = {int(one["n"]) for one in found if one["step"]}
    spread = sorted(times)
    # Marks of the profiler's own may stand far from the rest.
    return spread[-1] - spread[0] + 1000, max(numbers, default=0) + 1, len(steps)


def _later(events: bytes, rounds: int, span: int, most: int, steps: int) -> bytes:
    def moved(one: re.Match[bytes]) -> bytes:
        if one["step"]:
            return b"ProfilerStep#%d" % (int(one["n"]) + rounds * steps)
        by = span if one["key"] == b"ts" else most
        number = int(one["number"])
        # 0 stands for none.
        return b'"%b": %d' % (one["key"], number + rounds * by if number else 0)

    return _NUMBERS.sub(moved, events) if rounds else events


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=float, default=2.0, help="GB")
    options = parser.parse_args()
    rounds = grow(options.source, options.file, int(options.size * 1e9))
    print(f"{options.file}: {options.file.stat().st_size / 1e9:.2f} GB, {rounds} rounds")


if __name__ == "__main__":
    main()
