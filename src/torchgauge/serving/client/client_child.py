"""A client in a process of its own, which does nothing but send.

It is started by its path and reads a setup from its standard input: where modules are found, and
its plan. It answers "ready", is sent the moment to begin, and then sends; each second it reports
how far it is, at the end its result. Any other message, or the end of the input, stops it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection as Pipe


def main() -> None:
    """Send what the setup says."""
    # What ends a whole job ends the process that measures, which says when to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    answers = Pipe(os.dup(1), readable=False)
    os.dup2(2, 1)  # what a library prints is no answer
    orders = Pipe(os.dup(0), writable=False)
    sys.path[:] = orders.recv()
    from torchgauge.serving.client.sending_loop import answered

    try:
        answered(orders, answers)
    except (EOFError, OSError, pickle.UnpicklingError):  # whoever started it is gone
        sys.exit(1)


if __name__ == "__main__":
    main()
