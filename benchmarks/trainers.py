"""The trainers' callbacks against counts by hand, and what they add to a step.

Small models are trained by Hugging Face's Trainer, Lightning and Accelerate. By hand are counted:
tokens (or samples) and seconds between the ends of the second and the last step, by a few lines in
the loop itself, and FLOPs by closed forms. Then the callback's own work is timed alone: a step of
one batch, in which nothing is computed.

    python benchmarks/trainers.py [--steps N]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchgauge.integrate.accelerate import Gauge
from torchgauge.measure.training import gauge as gauge_module
from torchgauge.measure.training.batch_shapes import GaugeOptions, Job
from torchgauge.measure.training.gauge import TrainingGauge
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.work.utilization import PeakUsed
from torchgauge.targets.inputs.inputs import Inputs

PEAK = PeakUsed(device="assumed", dtype="float32", flops_per_second=1e11, source="measured")
WIDTH, LAYERS, WORDS, LENGTH, BATCH = 256, 4, 1000, 128, 4
IN, HIDDEN, OUT, ROWS = 512, 2048, 256, 256
GPT_FLOPS = 3 * (2 * (12 * LAYERS * WIDTH**2 + WIDTH * WORDS) + 4 * LAYERS * LENGTH * WIDTH)
MLP_FLOPS = 4 * IN * HIDDEN + 6 * HIDDEN * OUT


class ByHand(NamedTuple):
    """Units (tokens or samples) of the steps after the second, their seconds, FLOPs of a unit."""

    units: int
    seconds: float
    flops: int

    def row(self, name: str, record: TrainingRun, rate: float | None) -> str:
        """Return the deviations of a record from these."""
        mfu = self.units * self.flops / self.seconds / PEAK.flops_per_second
        used = record.utilization
        assert used is not None, record.unknown
        assert used.mfu is not None
        per_unit = used.model_flops * record.rated / self.units
        return (
            f"{name:14} {record.count:>5} steps of {1e3 * (record.step or 0):6.1f} ms  "
            f"rate {100 * ((rate or 0) / (self.units / self.seconds) - 1):+.2f} %  "
            f"MFU {100 * (used.mfu / mfu - 1):+.2f} %  "
            f"FLOPs {100 * (per_unit / self.flops - 1):+.3f} %  waits {record.data_wait_share:.1%}"
        )


def hugging_face(steps: int, folder: str) -> str:
    """Train GPT-2 by the Trainer, two batches a step."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from torchgauge.integrate.transformers import GaugeCallback

    ends: list[float] = []

    class Ends(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    config = GPT2Config(
        n_embd=WIDTH, n_layer=LAYERS, n_head=4, vocab_size=WORDS, n_positions=LENGTH
    )
    ids = torch.randint(0, WORDS, (2 * BATCH * steps, LENGTH))
    data = [{"input_ids": row, "labels": row} for row in ids]
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=BATCH, gradient_accumulation_steps=2, max_steps=steps,
        use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=10**9,
    )  # fmt: skip
    callback = GaugeCallback()
    Trainer(
        GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[Ends(), callback]
    ).train()
    units = 2 * BATCH * LENGTH * (steps - 2)
    by_hand = ByHand(units, ends[-1] - ends[1], GPT_FLOPS)
    return by_hand.row("transformers", callback.record, callback.record.tokens_per_second)


def mlp() -> nn.Sequential:
    """Return a two-layer MLP."""
    return nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))


def loader(steps: int) -> DataLoader[Any]:
    """Return a loader of so many batches."""
    x = torch.randn(ROWS * steps, IN)
    return DataLoader(TensorDataset(x, x[:, :OUT].contiguous()), batch_size=ROWS)


def lightning(steps: int, folder: str) -> str:
    """Train an MLP by Lightning."""
    import lightning.pytorch as pl

    from torchgauge.integrate.lightning import GaugeCallback

    ends: list[float] = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def training_step(self, batch: Any, _batch_idx: int) -> Any:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def on_train_batch_end(self, *_: Any) -> None:
            ends.append(time.perf_counter())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = GaugeCallback()
    pl.Trainer(
        max_steps=steps, callbacks=[callback], accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        default_root_dir=folder,
    ).fit(Module(), loader(steps))  # fmt: skip
    by_hand = ByHand(ROWS * (steps - 2), ends[-1] - ends[1], MLP_FLOPS)
    return by_hand.row("lightning", callback.record, callback.record.samples_per_second)


def accelerate(steps: int) -> str:
    """Train an MLP by a loop with Accelerate."""
    from accelerate import Accelerator

    ends: list[float] = []
    accelerator = Accelerator(cpu=True)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader(steps))
    with Gauge(accelerator, model, batches) as gauge:
        for x, y in batches:
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
    by_hand = ByHand(ROWS * (steps - 2), ends[-1] - ends[1], MLP_FLOPS)
    return by_hand.row("accelerate", gauge.record, gauge.record.samples_per_second)


def own_work(steps: int = 20_000) -> float:
    """Return the ns that the callback's core takes for a step of one batch of two tensors."""
    gauge = TrainingGauge(Job("transformers", nn.Linear(4, 4)), GaugeOptions())
    batch = {"input_ids": torch.zeros(2, 4, dtype=torch.int64), "labels": torch.zeros(2, 4)}
    x = Inputs((torch.zeros(2, 4),))
    times = []
    for _ in range(7):
        began = time.thread_time_ns()
        for _ in range(steps):
            gauge.waited(1)
            gauge.batch(batch)
            gauge.called(x)
            gauge.end_step()
        times.append((time.thread_time_ns() - began) / steps)
    return statistics.median(times[1:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="steps of each training")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    gauge_module.device_peak = lambda *_: PEAK  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        print(hugging_face(options.steps, folder), flush=True)
        print(lightning(options.steps, folder), flush=True)
    print(accelerate(options.steps), flush=True)
    print(f"the callback's own work: {own_work():,.0f} ns a step of one batch")


if __name__ == "__main__":
    main()
