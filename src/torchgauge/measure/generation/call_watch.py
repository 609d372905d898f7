"""Watch a model while a program generates with it, and make records of its calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Literal

from torch import nn

from torchgauge.forks import Owner
from torchgauge.measure.generation.call_records import generate_record
from torchgauge.measure.generation.forwards import Ongoing, Role, ThreadForwards, timed
from torchgauge.measure.generation.generate_calls import GenerateCall, watched
from torchgauge.measure.generation.watched_modules import encoders_of, model_of, nested_models
from torchgauge.records.generation.call import GenerationCall
from torchgauge.signals import HeldBack


class CallWatch:
    """A context manager; `calls` are those of `generate()` and of decode loops within its block.

    The model is as it was afterwards. In a forked process nothing is recorded.
    """

    def __init__(self, model: Any, assistant: Any = None) -> None:
        self.model = model_of(model)
        self.assistant = None if assistant is None else model_of(assistant)
        self._threads: list[Ongoing] = []
        self._of_thread = ThreadForwards(self._ongoing)
        self._generated: list[GenerateCall] = []
        self._assistants: dict[int, tuple[int, contextlib.ExitStack]] = {}
        self._lock = threading.Lock()
        self._open = contextlib.ExitStack()
        self._owner = Owner()
        parameter = next(self.model.parameters(), None)
        self._device = "cpu" if parameter is None else str(parameter.device)

    def __enter__(self) -> CallWatch:
        """Begin to watch."""
        with HeldBack():
            try:
                self._watch()
            except BaseException:  # Ctrl-C too: the model must be as it was
                self._open.close()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        """Put the model back as it was, in a forked process too."""
        with HeldBack():
            self._open.close()
        return False

    @property
    def calls(self) -> tuple[GenerationCall, ...]:
        """The calls that have ended, in the order in which they began; waits for a GPU's work."""
        calls = [(call.begin, generate_record(call, self._device)) for call in self._generated]
        return tuple(call for _, call in sorted(calls, key=lambda call: call[0]))

    def _watch(self) -> None:
        models = nested_models(self.model)
        for depth, model in enumerate(models):
            self._time(model, "model", models[depth + 1 :])
            if callable(getattr(type(model), "generate", None)) or "generate" in model.__dict__:
                self._open.enter_context(
                    watched(model, self._of_thread, self._note, self._assisted, _no_layout)
                )
        for encoder in encoders_of(models[-1]):
            self._time(encoder, "encoder")
        if self.assistant is not None:
            self._time(self.assistant, "assistant")

    def _time(self, module: nn.Module, role: Role, within: tuple[nn.Module, ...] = ()) -> None:
        self._open.enter_context(timed(module, role, self._of_thread, within))

    def _note(self, call: GenerateCall) -> None:
        if not self._owner.in_fork:
            self._generated.append(call)

    def _ongoing(self) -> Ongoing:
        ongoing = Ongoing()
        self._threads.append(ongoing)
        return ongoing

    @contextlib.contextmanager
    def _assisted(self, assistant: Any) -> Iterator[None]:
        yield


def _no_layout(cache: Any) -> Any:
    return None
