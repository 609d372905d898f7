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
    from torchgauge.measure.latency import LatencyOptions
    from torchgauge.measure.processes import ChildAnswer, Request
    from torchgauge.model.latency import LatencyRun
    from torchgauge.target.placement import Placement
    from torchgauge.target.source import Source

PR_SET_PDEATHSIG = 1


def main(folder: str, parent: str, work: str) -> None:
    """Read the request in `folder`, do the work (`processes.Work`), and write the answer.

    With the work "wait" the answers go to standard output, one to each line read: see
    `waiting_child`. With "fork" a process is forked for each line read: see `fork_child`.
    """
    end_with(int(parent))
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, take_the_first)
    request = Path(folder, "request").open("rb")  # noqa: SIM115 - `measured` closes it
    place = pickle.load(request)  # noqa: S301 - the parent wrote it
    os.chdir(place["folder"])
    sys.path[:] = place["path"]
    if work == "wait":
        from torchgauge.measure.waiting_child import serve

        serve(request, place["foreign"])
        return

    if work == "fork":
        from torchgauge.measure.fork_child import serve as fork_for_each

        request.close()
        fork_for_each(place["modules"])
        return
    answer_to(Path(folder), request, work, place["foreign"])


def answer_to(folder: Path, request: BinaryIO, work: str, foreign: str = "") -> None:
    """Do the work that is asked for, and write the answer, or the error that ended it."""
    import msgspec

    from torchgauge.errors import TorchgaugeError
    from torchgauge.files import write_atomically
    from torchgauge.measure.processes import ChildAnswer
    from torchgauge.model.failure import Failure
    from torchgauge.target.home import check_home

    try:
        answer = measured(request, work)
        check_home(foreign)
    except TorchgaugeError as error:
        answer = ChildAnswer(failure=Failure.of(error))
    write_atomically(folder / "answer", msgspec.json.encode(answer))


def measured(request: BinaryIO, work: str) -> ChildAnswer:
    """Take the parent's settings, then its model, and measure."""
    from torchgauge.measure.latency import measure
    from torchgauge.measure.processes import ChildAnswer

    with request:
        wanted, (source, options, timeline) = taken(request)
    if work == "check":
        from torchgauge.measure import check

        assert isinstance(source, check.Checking)  # noqa: S101 - it comes with this work
        return ChildAnswer(checked=check.check(source, original(source, wanted), options))
    if work == "layers":
        from torchgauge.measure import layer_choice

        assert isinstance(source, layer_choice.Choosing)  # noqa: S101 - it comes with this work
        return ChildAnswer(layers=layer_choice.chosen(source, original(source, wanted), options))
    if work == "profile":
        from torchgauge.measure import plan
        from torchgauge.progress import Silent

        return ChildAnswer(profile=plan.profile(source, options, Silent(), timeline))
    if work == "essentials":
        from torchgauge.measure import essentials

        return ChildAnswer(profile=essentials.measure(source, options))
    placement = opened(source, wanted)
    if work == "facts":
        from torchgauge.measure.facts import facts

        return ChildAnswer(facts=facts(placement, options))
    run = measure(placement, options)
    if options.layers and run.stop != "interrupted":
        run = _with_layers(run, placement, options)
    return ChildAnswer(run=run)


def _with_layers(run: LatencyRun, placement: Placement, options: LatencyOptions) -> LatencyRun:
    """Return the run with its layers' times, or as it is where Ctrl-C comes meanwhile."""
    import msgspec

    from torchgauge.measure import layer_times

    try:
        layers = layer_times.measure(placement, options.train)
    except KeyboardInterrupt:
        return msgspec.structs.replace(run, stop="interrupted")
    return msgspec.structs.replace(run, layer_times=layers)


def taken(request: BinaryIO) -> tuple[dict[str, Any], Request]:
    """Take the parent's settings, and return them and what is to be measured."""
    from torchgauge.device import settings

    wanted = pickle.load(request)  # noqa: S301 - the parent wrote it
    settings.apply(wanted)
    found = unpacked(request)
    Path(request.name).unlink()  # it holds the model, maybe in memory
    return wanted, found


def opened(source: Source, wanted: dict[str, Any]) -> Placement:
    """Load the target, then set what torch lets a process set a single time.

    What is changed about it comes last, since it may be a setting.
    """
    from torchgauge.target.changed import Changed, changed

    placement = original(source, wanted)
    return changed(placement, source.code) if isinstance(source, Changed) else placement


def original(source: Source, wanted: dict[str, Any]) -> Placement:
    """Load the target as it is, then set what torch lets a process set a single time."""
    from torchgauge.device import settings
    from torchgauge.measure.forward import running

    with running(source.device or "cpu", "Loading the model"):
        placement = source.open()
    settings.apply(wanted, once=True)
    return placement


def unpacked(request: BinaryIO) -> Request:
    """Return what is to be measured; raises InputError `not-picklable` where it cannot be had."""
    from torchgauge.errors import InputError

    try:
        wanted: Request = pickle.load(request)  # noqa: S301 - the parent wrote it
    except Exception as error:
        raise InputError(
            "The model cannot be rebuilt in a fresh process.",
            id="not-picklable",
            cause=f"{type(error).__name__}: {error}",
            remedy="Use processes=1, or name it as file.py:factory on the command line.",
        ) from error
    return wanted


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
