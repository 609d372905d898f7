"""The watching of a loop with Accelerate: `with Gauge(accelerator, model, loader) as gauge:`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

from torch import nn

from torchgauge.integrate.gauged_training import AUTOCAST, GaugedTraining, guarded
from torchgauge.measure.training.batch_shapes import Job, watched_loader
from torchgauge.measure.training.model_calls import watched_calls


class Gauge(GaugedTraining):
    """Times the steps of a loop with Accelerate, counts their FLOPs and logs to its trackers.

    A step ends where the loop asks for the next batch, and gradients were not accumulated further.
    The figures are `torchgauge/step_time` (s), `data_wait` (a share), `tokens_per_second`,
    `samples_per_second`, `mfu`, `hfu` and `memory_peak` (bytes).

    Args:
        accelerator: The `Accelerator`.
        model: The model that the loop calls, as `prepare` returned it.
        loader: The loader of the training, as `prepare` returned it.
        log_every: Steps between two logs to the accelerator's trackers; 0: none.
        options: Those of `GaugedTraining`.

    Attributes:
        record: The `TrainingRun` until now.
    """

    def __init__(
        self,
        accelerator: Any,
        model: nn.Module,
        loader: Any,
        *,
        log_every: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._accelerator = accelerator
        self._model = model
        self._loader = loader
        self._log_every = log_every

    def __enter__(self) -> Self:
        """Begin to watch the loop."""
        self._enter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """End the watching, and write the record."""
        self._end(interrupted=error is not None)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave what the block does out of the steps: an evaluation within an epoch."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @guarded
    def fetching(self) -> None:
        """Take note that a step has ended, if gradients were not accumulated further; then log."""
        gauge, accelerator = self.gauge, self._accelerator
        if gauge is None:
            return
        if not gauge.has_batches:
            gauge.resume()
            if not gauge.count:
                gauge.restart()
        elif accelerator.sync_gradients:
            gauge.end_step()
            due = self._log_every and gauge.count % self._log_every == 0
            if due and accelerator.trackers and (figures := gauge.figures()):
                accelerator.log(figures, step=gauge.count)

    @guarded
    def fetched(self, batch: Any, duration: int) -> None:
        """Take note of a batch."""
        super().fetched(batch, duration)
        if self.gauge is not None:
            self.gauge.batch(batch)

    @guarded
    def exhausted(self) -> None:
        """Leave what the loop does between epochs out of the steps."""
        self.pause()

    @guarded
    def _enter(self) -> None:
        accelerator, model, loader = self._accelerator, self._model, self._loader
        parallelism = getattr(accelerator, "parallelism_config", None)
        divides = (getattr(parallelism, f"{kind}_size", None) or 1 for kind in ("cp", "sp"))
        self.begin(
            Job(
                trainer="accelerate",
                model=model,
                dtype=AUTOCAST.get(accelerator.mixed_precision, ""),
                processes=accelerator.num_processes if max(divides) == 1 else None,
            )
        )
        self.enter(watched_loader(type(loader), self, lambda iterated: iterated is loader))
        self.enter(watched_calls(model, self.called))

    @guarded
    def _end(self, *, interrupted: bool) -> None:
        self.end(interrupted=interrupted)
