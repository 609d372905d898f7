"""Ranks' traces read in a process of its own, one after the other.

It is started by its path, and reads lines of JSON from its standard input: first how files are read
and where modules are found, then one file a line. It answers with a `HEADER` and that many bytes,
and ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time

# CPU seconds. What a process keeps of the memory that files took goes with it; starting the next
# takes some 0.3.
LIFETIME = 4.0


def main() -> None:
    """Answer each line until there is no other, or the process has worked for its lifetime."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    setup = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    from torchgauge.traces.rank_file import HEADER, answered
    from torchgauge.traces.read_options import ReadOptions

    options = ReadOptions(**setup["options"])
    for line in sys.stdin:
        data = answered(json.loads(line), options)
        goes_on = time.process_time() < LIFETIME
        answers.write(HEADER.pack(len(data), goes_on) + data)
        answers.flush()
        if not goes_on:
            break


if __name__ == "__main__":
    main()
