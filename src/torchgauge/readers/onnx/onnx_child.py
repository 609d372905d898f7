"""An ONNX file read in a process of its own, which is held to limits of memory.

It is started by its path, and reads one line of JSON from its standard input: where modules are
found, the file, the sizes of its inputs, and the limit. It answers with an `Answer`, and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys


def main() -> None:
    """Answer the question."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    question = json.loads(sys.stdin.readline())
    with contextlib.suppress(ValueError, OSError):  # it is held to less already
        resource.setrlimit(resource.RLIMIT_DATA, (question["memory"], question["memory"]))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path[:] = question["path"]
    from torchgauge.readers.onnx.onnx_file import answered

    answers.write(answered(question))
    answers.flush()
    os._exit(0)  # freeing a large model takes long


if __name__ == "__main__":
    main()
