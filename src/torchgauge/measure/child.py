"""The other end of `processes`: one measurement in this fresh process, its result to a file.

Nothing but the standard library is imported before the parent's sys.path is in place.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from torchgauge.measure.processes import ChildAnswer

PR_SET_PDEATHSIG = 1


def main(folder: str, parent: str) -> None:
    """Read the request in `folder`, measure, and write the answer there."""
    end_with(int(parent))
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, take_the_first)
    request = Path(folder, "request")
    with request.open("rb") as file:
        place = pickle.load(file)  # noqa: S301 - the parent wrote it
        os.chdir(place["folder"])
        sys.path[:] = place["path"]
        request.unlink()  # it holds the model: closed, it takes no more room

        from torchgauge.device import settings

        settings.apply(pickle.load(file))  # noqa: S301
        source = unpacked(file)

    import msgspec

    from torchgauge.files import write_atomically

    write_atomically(Path(folder, "answer"), msgspec.json.encode(measured(request)))


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux); nobody else would.

    Elsewhere the end of the sampling ends it.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        os.kill(parent, 0)  # raises where the parent was gone before


def take_the_first(_number: int, _frame: FrameType | None) -> None:
    """Interrupt once: a terminal and the parent both send it, and the answer must get written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(*sys.argv[1:])
