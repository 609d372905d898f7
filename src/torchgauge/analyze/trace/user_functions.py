"""The user's Python function around an event, in traces with stacks."""

from __future__ import annotations

import re
import sys

import numpy as np

from torchgauge.readers.kineto.categories import MODULE_CALL
from torchgauge.records.trace.events import Events

_FUNCTION = re.compile(r"(?P<file>.+\.py)\(\d+\): .+", re.DOTALL)
_FOREIGN = re.compile(
    r"(.*/)?(torch|torchgauge|_distutils_hack|(site|dist)-packages)/|.*/lib/python[\d.]+/"
)


def user_function(events: Events, row: int) -> str:
    """Return the innermost function of the user's around an event; "" where there is none.

    torch writes it as "train.py(12): step", with the line at which the function begins.
    """
    python = events.python.row
    time = int(events.start[row]) + int(events.duration[row]) // 2
    start, thread = events.start[python], events.thread.codes[python]
    around = (start <= time) & (start + events.duration[python] > time)
    around &= thread == events.thread.codes[row]
    calls = python[around]
    for call in calls[np.argsort(-events.start[calls], kind="stable")].tolist():
        name = str(events.name[call])
        if _is_own(name):
            return name
    return ""


def _is_own(name: str) -> bool:
    match = _FUNCTION.fullmatch(name)
    if match is None or name.startswith((MODULE_CALL, "<")):
        return False
    file = match["file"]
    package = file.partition("/")[0].removesuffix(".py")
    return _FOREIGN.match(file) is None and package not in sys.stdlib_module_names
