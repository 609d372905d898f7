"""The start of a server's process: the front, which speaks HTTP, or a worker, which has the model.

Run by its path; nothing but the standard library is imported before the parent's sys.path is in
place, which is in the file `request` of the folder.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path


def main(folder: str, parent: str, role: str, *arguments: str) -> None:
    """Take the parent's place, then serve as `role`, "front" or "worker", until the parent ends."""
    # What ends a job goes to all its processes: the one that measures ends the server.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with Path(folder, "request").open("rb") as request:
        place = pickle.load(request)  # noqa: S301 - the parent wrote it
        os.chdir(place["folder"])
        sys.path[:] = place["path"]
        from torchgauge.measure.processes.child import end_with

        end_with(int(parent))
        if role == "worker":
            from torchgauge.serving.server.worker import serve as serve_batches

            serve_batches(request, *map(int, arguments))
            return
    from torchgauge.serving.server.front import serve as serve_http

    max_batch, max_delay, workers = arguments
    serve_http(Path(folder), int(max_batch), float(max_delay), int(workers))


if __name__ == "__main__":
    main(*sys.argv[1:])
