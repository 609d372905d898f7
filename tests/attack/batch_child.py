"""Reads cases of one reader and says what came of each; started by `tests/attack/batches.py`.

    python -m tests.attack.batch_child READER CASE

shows one case with its traceback.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.attack.batches import MEMORY
from tests.attack.readers import READERS

from torchgauge.errors import TorchgaugeError


def read(reader, case, folder):
    """Return "result" or the id of the error; anything else is raised."""
    dice = random.Random(f"{reader}:{case}")
    place = folder / str(case)
    place.mkdir()
    try:
        READERS[reader](dice, place)
    except TorchgaugeError as error:
        return error.id or "no id"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return "result"


def described():
    """Return the last line of the traceback, and the innermost places of it."""
    kind, error, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)
    inner = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:]]
    return f"{kind.__name__}: {str(error)[:200]} ({' > '.join(inner)})"


def main(reader, first, last):
    said = os.fdopen(os.dup(1), "w", buffering=1)
    limited = False
    # What readers print is of no interest here.
    with (
        tempfile.TemporaryDirectory() as name,
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        for case in range(first, last):
            line = {"case": case}
            try:
                line["said"] = read(reader, case, Path(name))
            except BaseException:  # noqa: BLE001 - that is what is looked for
                line["fell"] = described()
            line["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            said.write(json.dumps(line) + "\n")
            if not limited:  # all is imported now
                limit_memory()
                limited = True


def limit_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        with tempfile.TemporaryDirectory() as place:
            print(read(sys.argv[1], int(sys.argv[2]), Path(place)))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
