"""Reports what a measurement copied, changed and could not put back, with its warnings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import Literal

import torch

from torchgauge.errors import text_of
from torchgauge.records.record import MeasurementWarning

Role = Literal["buffer", "parameter", "gradient", "attribute", "input"]

_NAMED = 3  # tensors that a warning names; it counts the others
_NOTE = "torchgauge could not put back "


@dataclasses.dataclass
class Restoration:
    """Copies in bytes on the `host` and the `device`; names of what the work inside changed.

    `restored` and `altered` are parameters, buffers, gradients and attributes that an inference
    changed and that were, or could not be, put back; `inputs` are inputs (True: put back); `failed`
    are the steps of putting back that raised, with their errors. `progressed`: the model came out
    with other attributes or values than training writes. All are known after the block.
    """

    host: int = 0
    device: int = 0
    restored: list[str] = dataclasses.field(default_factory=list)
    altered: list[str] = dataclasses.field(default_factory=list)
    inputs: dict[str, bool] = dataclasses.field(default_factory=dict)
    failed: list[str] = dataclasses.field(default_factory=list)
    progressed: bool = False

    def count(self, saved: torch.Tensor) -> None:
        """Add a copy to the bytes of its place."""
        if saved.is_cpu:
            self.host += saved.nbytes
        else:
            self.device += saved.nbytes

    def guarded(
        self, part: str, restore: Callable[[], None]
    ) -> Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], bool]:
        """Return `restore` as an exit that raises no error: its errors are noted here.

        A GPU after a failed assertion raises on every use; the error that says so is the one
        raised inside the block, and that gets a note of what could not be put back.
        """

        def leave(
            _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
        ) -> bool:
            try:
                restore()
            except BaseException as failure:  # whatever it is, the other steps must run
                self.failed.append(f"{part} ({text_of(failure)})")
                interrupt = isinstance(failure, KeyboardInterrupt)  # of code that restoring runs
                raised = failure if interrupt else error
                if raised is not None:
                    raised.add_note(f"{_NOTE}{self.failed[-1]}")
                if interrupt:
                    raise
            return False

        return leave

    def warnings(self, probe: str, *, lasting_only: bool = False) -> tuple[MeasurementWarning, ...]:
        """Return the warnings for the reader of `probe`'s figures; empty for most models.

        With `lasting_only` restored changes are left out: they do not affect a single call.
        """
        model_warnings = []
        restored = [] if lasting_only else self.restored
        inputs = {k: v for k, v in self.inputs.items() if not (lasting_only and v)}
        if restored or self.altered:
            model_warnings.append(_model_changed(restored, self.altered, probe))
        if inputs:
            model_warnings.append(_inputs_changed(inputs, probe))
        if self.failed:
            model_warnings.append(_not_restored(self.failed, probe))
        return tuple(model_warnings)


def not_restored(error: BaseException, probe: str) -> tuple[MeasurementWarning, ...]:
    """Return the warnings of what could not be put back when `error` ended a probe."""
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(_NOTE)]
    failed = [note.removeprefix(_NOTE) for note in notes]
    return (_not_restored(failed, probe),) if failed else ()


def _not_restored(failed: list[str], probe: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="not-restored",
        message=f"Not everything could be put back: {'; '.join(failed)}.",
        probe=probe,
        remedy="Load the model again before using it.",
    )


def _model_changed(restored: list[str], altered: list[str], probe: str) -> MeasurementWarning:
    message = f"The model's forward changes its own state: {listed(restored + altered)}."
    if altered:
        message += f" Not put back: {listed(altered)}."
    return MeasurementWarning(
        id="model-changed",
        message=message,
        probe=probe,
        cause="Each call of the measurement ran on what the call before had left.",
        remedy="Load the model again before using it: what is large is not copied for inference."
        if altered
        else "",
    )


def _inputs_changed(inputs: dict[str, bool], probe: str) -> MeasurementWarning:
    message = f"The model changes its inputs in place: {listed(list(inputs))}."
    if lost := [name for name, put_back in inputs.items() if not put_back]:
        message += f" Not put back: {listed(lost)}."
    return MeasurementWarning(
        id="inputs-changed",
        message=message,
        probe=probe,
        cause="Each call of the measurement got what the call before had left.",
    )


def listed(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    omitted = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {omitted} more" if omitted > 0 else "")
