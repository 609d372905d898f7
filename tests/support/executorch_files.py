"""Files that ExecuTorch 1.5.1 wrote of a small model, and dumps made by hand.

The model is body (linear 4 → 8, act, + a buffer `shift`) and head (linear 8 → 2), with a softmax,
on 3 × 4 numbers. `portable` runs on ExecuTorch's own kernels, `delegated` in XNNPACK, `dynamic` has
up to 6 samples. Of the ETRecords only the texts are there that are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.flatbuffers import Scalar, flatbuffer
from tests.support.paths import DATA

FILES = DATA / "executorch"


def event(name: str, instruction: int, begin: int, end: int, part: str = "") -> dict[int, Any]:
    """Return an event of a dump."""
    fields = {
        0: name, 2: Scalar("i", instruction), 6: Scalar("Q", begin), 7: Scalar("Q", end),
    }  # fmt: skip
    return {0: fields | ({4: part} if part else {})}


def dump(*runs: list[dict[int, Any]], sized: bool = True) -> bytes:
    """Return a dump of runs, each a list of events."""
    tables = [{0: "Execute", 3: events} for events in runs]
    return flatbuffer({0: Scalar("I", 0), 1: tables}, b"ED00", sized=sized)


def run(begin: int, *durations: int) -> list[dict[int, Any]]:
    """Return the events of a run: a call of each instruction, 10 ns before it and 20 ns after."""
    events, now = [], begin + 10
    for number, duration in enumerate(durations):
        events.append(event("native_call_add.out", number, now + 1, now + duration - 1))
        events.append(event("OPERATOR_CALL", number, now, now + duration))
        now += duration
    return [*events, event("Method::execute", 0, begin, now + 20)]


def path(name: str) -> Path:
    """Return the path of one of the files."""
    return FILES / name
