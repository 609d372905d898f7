"""The other end of `processes`: one measurement in this fresh process, its result to a file."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import msgspec


def main(request: str, answer: str) -> None:
    """Read the request, measure, write the answer; both files belong to the parent process."""
    settings = pickle.loads(Path(request).read_bytes())  # noqa: S301 - the parent wrote it
    os.chdir(settings["folder"])
    sys.path[:] = settings["path"]

    import torch

    from torchgauge.errors import TorchgaugeError
    from torchgauge.measure.latency import measure
    from torchgauge.measure.processes import ChildAnswer

    torch.set_num_threads(settings["threads"])
    try:
        source, options = pickle.loads(settings["body"])  # noqa: S301 - the parent wrote it
        result = ChildAnswer(run=measure(source.open(), options))
    except TorchgaugeError as error:
        fields = ("id", "message", "cause", "remedy")
        result = ChildAnswer(error={name: getattr(error, name) for name in fields})
    Path(answer).write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
