"""Which code objects are traced by line."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import PurePath
from types import CodeType, FrameType

from torchgauge.measure.lines.line_samples import kind_of

MODULE = "<module>"
LOCALS = "<locals>."


class TracedCode:
    """Functions by `names`: a name, with or without what it is in, or either after `file.py:`.

    Without names, the functions that are neither Python's, torch's nor a library's, and what stands
    outside of functions in the script.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.called: set[str] = set()  # the names of which a function was called

    def __contains__(self, frame: FrameType) -> bool:
        """Tell whether the lines of a frame's function are wanted."""
        code = frame.f_code
        if not self.names:
            if code.co_name == MODULE:
                is_traced = frame.f_globals.get("__name__") == "__main__"
            else:
                is_traced = _is_function(code)
            return is_traced and kind_of(code.co_filename) == "user's"
        matching = {name for name in self.names if _is_function(code) and _matches(name, code)}
        self.called |= matching
        return bool(matching)


def _is_function(code: CodeType) -> bool:
    """Tell a named function from modules, classes, lambdas and comprehensions."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def _matches(pattern: str, code: CodeType) -> bool:
    file, _, name = pattern.rpartition(":")
    plain = code.co_qualname.replace(LOCALS, "")
    if name != code.co_qualname and not f".{plain}".endswith(f".{name}"):
        return False
    suffix, parts = PurePath(file).parts, PurePath(code.co_filename).parts
    return not suffix or parts[-len(suffix) :] == suffix
