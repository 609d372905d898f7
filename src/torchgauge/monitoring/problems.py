"""What a monitor could not do: told once as a warning, counted in its status, never raised."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
import warnings
from collections.abc import Iterator

import msgspec

from torchgauge.errors import MeasurementError, text_of
from torchgauge.records.monitoring.window import Problem

# What libraries repeat of an address and is a secret: a user, a password, the fields of a query.
_SECRETS = re.compile(r"(?<=://)[^\s'\"]*@|\?[^\s'\"=]+=[^\s'\"]*")

LONGEST = 500  # characters of a message


class Problems:
    """The problems of one monitor by part; safe to use from every thread.

    No lock is taken: the handler of a signal would wait for the thread that it has interrupted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._times: dict[str, itertools.count[int]] = {}
        self._problems: dict[str, Problem] = {}

    def all(self) -> tuple[Problem, ...]:
        """Return the problems so far, one a part."""
        return tuple(self._problems.values())

    def add(self, part: str, error: BaseException) -> None:
        """Note an error; the first of each part is a warning, too."""
        message = _SECRETS.sub("", text_of(error)[: 4 * LONGEST])[:LONGEST]
        times = next(self._times.setdefault(part, itertools.count(1)))
        self._problems[part] = Problem(part=part, message=message, times=times, last=time.time())
        if times == 1:
            text = f"The monitor '{self._name}' goes on without its {part}: {message}"
            # Warnings as errors, or no stderr to warn on, must not end what is monitored.
            with contextlib.suppress(Exception):
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def once(self, part: str, cause: str) -> None:
        """Note what counts as "other" from now on; again it changes nothing."""
        if part not in self._problems:
            self.add(part, MeasurementError(f'{cause} Others count as "other".', id="monitor-cap"))

    @contextlib.contextmanager
    def noting(self, part: str) -> Iterator[None]:
        """Note what the block raises in place of raising it, and that the part works again."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - nothing of a monitor's reaches the model
            self.add(part, error)
        else:
            problem = self._problems.get(part)
            if problem is not None and not problem.solved:
                self._problems[part] = msgspec.structs.replace(problem, solved=True)
