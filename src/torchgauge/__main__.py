"""The command line: `torchgauge`, and `python -m torchgauge`.

From the first line to the last one Ctrl-C ends it with 130 and without a traceback. While something
is measured, in between, `cli.main` sees to it.
"""

import atexit
import gc
import os
import signal
import sys

_end_now = os._exit  # while a verb runs it is another


def _end(*_: object) -> None:
    """End at once: nothing has been measured yet, or all that was is written."""
    try:
        os.write(2, b"torchgauge: interrupted\n")
    finally:
        _end_now(130)


def _ignore_at_the_very_end() -> None:
    """Let Python not give up its handlers, which would let Ctrl-C end the process its own way."""
    if signal.getsignal(signal.SIGINT) in (_end, signal.default_int_handler):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


atexit.register(_ignore_at_the_very_end)  # the first to be registered is the last to run

# Where Ctrl-C is ignored, as in a shell's background job, it stays so.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)

from torchgauge.cli.main import main as _main  # noqa: E402 - importing it takes a while


def main() -> int:
    """Run the command line in a process of its own and return the exit code."""
    process = os.getpid()
    try:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return _main()
    except KeyboardInterrupt:  # once more, while the first one was told
        if os.getpid() == process:  # and not one that the user's code forked
            _end()
        raise
    finally:
        if sys.argv[1:2] != ["run"]:
            gc.freeze()  # or Python would search what is left for cycles, for half a second
        # What a script has left to do at its end is its own business.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler and sys.argv[1:2] != [
            "run"
        ]:
            signal.signal(signal.SIGINT, _end)
        # Where Ctrl-C has passed through an evaluated text, such as those that make dataclasses,
        # Python ends by the signal whatever is returned, until another text is evaluated.
        eval("0")  # noqa: S307


if __name__ == "__main__":
    raise SystemExit(main())
