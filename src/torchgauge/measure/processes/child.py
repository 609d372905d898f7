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

PR_SET_PDEATHSIG = 1


def main(folder: str, parent: str, work: str) -> None:
    """Read the request in `folder`, do the work in it (`child_work.Work`), and write the answer.

    With the work "wait" the answers go to standard output, one to each line read: see
    `waiting_child`. With "fork" a process is forked for each line read: see `fork_child`.
    """
    end_with(int(parent))
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, take_the_first)
    request = Path(folder, "request").open("rb")  # noqa: SIM115 - `child_work` closes it
    place = pickle.load(request)  # noqa: S301 - the parent wrote it
    os.chdir(place["folder"])
    sys.path[:] = place["path"]
    if work == "wait":
        from torchgauge.measure.processes.waiting_child import serve

        serve(request, place["foreign"])
        return

    if work == "fork":
        from torchgauge.measure.processes.waiting_child import serve_forks as fork_for_each

        request.close()
        fork_for_each(place["modules"], end_with, take_the_first)
        return
    from torchgauge.measure.processes.child_work import answer_to

    answer_to(Path(folder), request, place["foreign"])


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux); nothing else would.

    Then it leads a group of its own: a model that kills its process group ends itself alone, and
    the parent passes Ctrl-C on. Elsewhere the end of the sampling ends it.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        os.kill(parent, 0)  # raises where the parent was gone before
        os.setpgid(0, 0)


def take_the_first(_number: int, _frame: FrameType | None) -> None:
    """Interrupt once: a terminal and the parent both send it, and the answer must get written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(*sys.argv[1:])
