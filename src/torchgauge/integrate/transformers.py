"""The callback for Hugging Face's Trainer: `Trainer(…, callbacks=[GaugeCallback()])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchgauge.errors import missing_extra
from torchgauge.integrate.gauged_training import AUTOCAST, GaugedTraining, guarded
from torchgauge.measure.training.batch_shapes import Job, watched_loader
from torchgauge.measure.training.model_calls import watched_calls
from torchgauge.targets.inputs.inputs import Inputs

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise missing_extra("transformers", "huggingface", "GaugeCallback") from error


class GaugeCallback(GaugedTraining, TrainerCallback):
    """Times the steps of a Trainer, counts their FLOPs and adds figures to its log.

    The figures are `torchgauge/step_time` (s), `data_wait` (a share), `tokens_per_second`,
    `samples_per_second`, `mfu`, `hfu` and `memory_peak` (bytes), of the steps since the last log.

    Its arguments and attributes are those of `GaugedTraining`.
    """

    def add_to(self, trainer: Any) -> None:
        """Add it before a trainer's other callbacks, so that W&B and TensorBoard get its figures.

        Callbacks are called in order, and those given to `Trainer` come behind the loggers.
        """
        callbacks = trainer.callback_handler.callbacks
        if self in callbacks:
            callbacks.remove(self)
        callbacks.insert(0, self)

    @guarded
    def on_train_begin(self, args: Any, *_: Any, **kwargs: Any) -> None:
        """Begin to watch the training."""
        model, loader = kwargs["model"], kwargs["train_dataloader"]
        precision = "bf16" if args.bf16 else "fp16" if args.fp16 else ""
        compiled = args.torch_compile or hasattr(model, "_orig_mod")
        self._by_batch = compiled or model._compiled_call_impl is not None  # noqa: SLF001
        divides = (getattr(args.parallelism_config, f"{kind}_size", None) for kind in ("cp", "sp"))
        gauge = self.begin(
            Job(
                trainer="transformers",
                model=model,
                dtype=AUTOCAST.get(precision, ""),
                processes=None if max(size or 1 for size in divides) > 1 else args.world_size,
                uncountable="the model runs as DataParallel" if args.n_gpu > 1 else "",
            )
        )
        if loader is not None:
            self.enter(watched_loader(type(loader), self))
        if not self._by_batch:
            self.enter(watched_calls(model, self.called))
        gauge.restart()

    @guarded
    def fetched(self, batch: Any, duration: int) -> None:
        """Take note of a batch."""
        super().fetched(batch, duration)
        if self.gauge is None:
            return
        by_batch = self._by_batch and isinstance(batch, Mapping)
        self.gauge.batch(batch, Inputs(kwargs=dict(batch)) if by_batch else None)

    @guarded
    def _between_steps(self, *_args: Any, **_kwargs: Any) -> None:
        """Leave out of the steps what is done between them: an evaluation, a checkpoint."""
        self.restart()

    on_epoch_begin = on_evaluate = on_predict = on_save = _between_steps

    @guarded
    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Take note that the optimizer has stepped."""
        if self.gauge is not None:
            self.gauge.end_step()

    @guarded
    def on_log(self, *args: Any, **kwargs: Any) -> None:
        """Add the figures to what the trainer logs of its steps, and to its history."""
        (_, state, *_), logs = args, kwargs.get("logs")
        if self.gauge is None or not isinstance(logs, dict) or "loss" not in logs:
            return
        figures = self.gauge.figures()
        logs.update(figures)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(figures)

    @guarded
    def on_train_end(self, *_args: Any, **_kwargs: Any) -> None:
        """End the watching, and write the record."""
        self.end()
