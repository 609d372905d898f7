"""The callback for Lightning: `Trainer(callbacks=[GaugeCallback()])`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from torchgauge.errors import missing_extra
from torchgauge.integrate.gauged_training import AUTOCAST, GaugedTraining, guarded
from torchgauge.measure.training.batch_shapes import Job, watched_next
from torchgauge.targets.inputs.inputs import Inputs

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise missing_extra("lightning", "lightning", "GaugeCallback") from error

# Strategies whose processes differ in their batches, or divide the model by DTensors.
_STRATEGIES = (
    "SingleDeviceStrategy", "DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy",
    "ModelParallelStrategy",
)  # fmt: skip


class GaugeCallback(GaugedTraining, Callback):  # type: ignore[misc]
    """Times the steps of a Lightning Trainer, counts their FLOPs and gives figures to its loggers.

    The figures are `torchgauge/step_time` (s), `data_wait` (a share), `tokens_per_second`,
    `samples_per_second`, `mfu`, `hfu` and `memory_peak` (bytes), every `log_every_n_steps` steps.
    FLOPs are those of `training_step`; with manual optimization they are not known.

    Its arguments and attributes are those of `GaugedTraining`.
    """

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch the training."""
        signature = inspect.signature(pl_module.training_step)
        self._takes_index = len(signature.parameters) > 1  # whatever its name
        uncountable = ""
        if not pl_module.automatic_optimization:
            uncountable = "the module optimizes manually"
        elif "dataloader_iter" in signature.parameters:
            uncountable = "training_step takes its batches itself"
        names = {kind.__name__ for kind in type(trainer.strategy).__mro__}
        precision = str(trainer.precision)
        self._step = trainer.global_step
        gauge = self.begin(
            Job(
                trainer="lightning",
                model=pl_module,
                method="training_step",
                dtype=AUTOCAST.get(precision.removesuffix("-mixed"), "")
                if precision.endswith("-mixed")
                else "",
                processes=trainer.world_size if names & set(_STRATEGIES) else None,
                uncountable=uncountable,
            )
        )
        package = type(trainer).__module__.partition(".trainer")[0]
        loaders = importlib.import_module(f"{package}.utilities.combined_loader")
        self.enter(
            watched_next(
                loaders.CombinedLoader,
                self,
                lambda loader: loader.iterables is trainer.train_dataloader,
            )
        )
        gauge.restart()

    @guarded
    def on_train_batch_start(
        self, _trainer: Any, _module: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        """Take note of a batch."""
        if self.gauge is None:
            return
        self.resume()
        if isinstance(batch, Mapping) and not isinstance(batch, dict):
            batch = dict(batch)
        self.gauge.batch(batch, Inputs((batch, batch_idx) if self._takes_index else (batch,)))

    @guarded
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Take note that the optimizer has stepped, if it has; then log."""
        if self.gauge is None or trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        self.gauge.end_step()
        if self._step % trainer.log_every_n_steps == 0 and (figures := self.gauge.figures()):
            for logger in trainer.loggers:
                logger.log_metrics(figures, step=self._step)

    @guarded
    def _leave_steps(self, *_: Any) -> None:
        """Leave out of the steps what is between epochs, a validation and a checkpoint."""
        self.pause()

    @guarded
    def _go_on(self, *_: Any) -> None:
        """Let the clock run again; after a checkpoint when the next batch is fetched."""
        self.resume()

    on_train_epoch_end = on_validation_start = on_save_checkpoint = _leave_steps
    on_train_epoch_start = on_validation_end = fetching = _go_on

    @guarded
    def on_train_end(self, *_: Any) -> None:
        """End the watching, and write the record."""
        self.end()

    @guarded
    def on_exception(self, *_: Any) -> None:
        """Keep what was measured until the training failed, or was interrupted."""
        self.end(interrupted=True)
