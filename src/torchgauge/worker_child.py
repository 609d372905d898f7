"""The start of a worker process: it calls the function that its command line names.

It is run by its path; nothing but the standard library is imported before the parent's sys.path is
in place.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main(function: str, path: str) -> None:
    """Call "module:name" with the file that questions come from, and the one for answers."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        sys.path[:] = json.loads(path)
        module, _, name = function.partition(":")
        getattr(importlib.import_module(module), name)(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
