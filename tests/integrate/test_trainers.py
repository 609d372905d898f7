"""Real trainers on tiny models: figures by hand, and a training that is what it would be without.

MFU is compared with the closed forms of a two-layer MLP and of GPT-2; the peak is one that the
test gives, since a CPU has no datasheet.
"""

import logging
import math
import os
import signal
import warnings

import pytest
import torch
from tests.support.watched_memory import run_alone
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.measure.training import gauge as gauge_module
from torchgauge.records.work.utilization import PeakUsed

PEAK = PeakUsed(device="a", dtype="float32", flops_per_second=1e12, source="measured")
WIDTH, LAYERS, HEADS, WORDS, LENGTH = 32, 2, 2, 50, 16
# Each weight of the products: 2 FLOPs forward, 4 backward; scores and their use: 4·s·d a token.
GPT_FLOPS_A_TOKEN = 3 * (2 * (12 * LAYERS * WIDTH**2 + WIDTH * WORDS) + 4 * LAYERS * LENGTH * WIDTH)
MLP_FLOPS_A_SAMPLE = 4 * (8 * 16) + 6 * (16 * 4)


@pytest.fixture(autouse=True)
def _peak_and_quiet(monkeypatch):
    monkeypatch.setattr(gauge_module, "device_peak", lambda *_: PEAK)
    for name in ("lightning.pytorch", "lightning", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def _alone(monkeypatch, request):
    run_alone(monkeypatch, request.node)


class Words(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        ids = torch.randint(0, WORDS, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def gpt(**changes):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, vocab_size=WORDS, n_positions=LENGTH, **changes
    )
    return GPT2LMHeadModel(config)


def train(tmp_path, callbacks, model=None, data=None, **settings):
    """Train by the Trainer: 22 samples in batches of 4, two batches a step, so 3 steps an epoch."""
    from transformers import Trainer, TrainingArguments

    usual = {"num_train_epochs": 2, "gradient_accumulation_steps": 2, "logging_steps": 1}
    arguments = TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=4, use_cpu=True, report_to=[],
        disable_tqdm=True, save_strategy="no", seed=1, **(usual | settings),
    )  # fmt: skip
    data = data or Words()
    trainer = Trainer(
        model or gpt(), arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks
    )
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    for callback in callbacks:
        if hasattr(callback, "add_to"):
            callback.add_to(trainer)
            assert trainer.callback_handler.callbacks.index(callback) == 0
    trainer.train()
    return trainer


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.thorough
def test_hugging_face_s_trainer_is_told_of_and_unchanged(tmp_path):
    from torchgauge.integrate.transformers import GaugeCallback

    path = tmp_path / "run.json"
    callback = GaugeCallback(save=path)
    trainer = train(tmp_path, [callback], eval_strategy="epoch")
    record = callback.record
    # Steps of 8, 8 and 6 samples, twice; the first two are not rated.
    assert (record.count, record.rated, record.samples) == (6, 4, 6 + 8 + 8 + 6)
    assert record.tokens == record.samples * LENGTH
    assert record.micro_batches == 2
    assert record.counted == record.rated
    assert record.utilization.mfu == pytest.approx(
        GPT_FLOPS_A_TOKEN * record.tokens / record.time / 1e12, rel=0.001
    )
    assert record.between > 0
    assert not record.warnings
    assert path.exists()
    assert "torchgauge/tokens_per_second" in trainer.state.log_history[4]
    plain = train(tmp_path, [], eval_strategy="epoch")
    assert losses(plain) == losses(trainer)
    for mine, theirs in zip(trainer.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.thorough
def test_gradient_checkpointing_of_a_trainer_is_seen(tmp_path):
    from torchgauge.integrate.transformers import GaugeCallback

    callback = GaugeCallback()
    train(tmp_path, [callback], gradient_checkpointing=True, num_train_epochs=1)
    used = callback.record.utilization
    tokens = callback.record.tokens
    assert used.model_flops == pytest.approx(GPT_FLOPS_A_TOKEN * tokens, rel=0.001)
    # Both blocks are computed again; their weights and attention, and not the words'.
    again = (2 * 12 * LAYERS * WIDTH**2 + 4 * LAYERS * LENGTH * WIDTH) * tokens
    assert used.executed_flops - used.model_flops == pytest.approx(again, rel=0.01)
    assert used.hfu > used.mfu


@pytest.mark.thorough
@pytest.mark.usefixtures("_alone")
def test_the_memory_of_a_trainer_s_steps_names_what_is_kept(tmp_path):
    from transformers import TrainerCallback

    model, kept = gpt(), []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    with tg.timeline(memory=True) as run:
        train(tmp_path, [TrainerCallback()], model, num_train_epochs=3)
    memory = run.record.memory
    assert [step.number for step in memory.steps] == [3, 4, 5, 6, 7]
    largest = memory.outliving[0]
    assert largest.layer == "GPT2LMHeadModel.lm_head"
    assert largest.holder.startswith("kept[")
    assert largest.held_in.startswith("test_the_memory_of_a_trainer_s_steps")


@pytest.mark.thorough
def test_a_window_of_a_trainer_becomes_a_tree(tmp_path):
    from torchgauge.integrate.transformers import GaugeCallback

    callback = GaugeCallback(window=2, after=3)
    train(tmp_path, [callback], max_steps=30, gradient_accumulation_steps=1)
    record = callback.record
    assert record.window.captured.recorded == 2
    assert any("transformer.h.0" in row.path for row in record.tree.rows if row.kind == "layer")
    assert record.rated < record.count - 2
    assert "Recorded window" in str(record)


@pytest.mark.slow
def test_a_compiled_model_has_the_same_graphs(tmp_path):
    from torch._dynamo.utils import counters

    from torchgauge.integrate.transformers import GaugeCallback

    callback, results = GaugeCallback(), []
    for callbacks in ([], [callback]):
        torch._dynamo.reset()
        counters.clear()
        trainer = train(
            tmp_path, callbacks, torch_compile=True, torch_compile_backend="eager", max_steps=3
        )
        graphs = dict(counters["graph_break"]), dict(counters["stats"])
        results.append((graphs, losses(trainer)))
    assert results[0] == results[1]
    assert callback.record.counted == callback.record.rated == 1


def test_what_fails_in_a_hook_never_reaches_the_training(tmp_path, monkeypatch):
    from torchgauge.integrate.transformers import GaugeCallback

    def fail(*_):
        raise RuntimeError("a defect")

    callback = GaugeCallback(samples=lambda batch: len(batch["nothing"]))
    trainer = train(tmp_path, [callback], max_steps=2)
    assert trainer.state.global_step == 2
    assert callback.record.warnings[0].id == "training-watch-failed"
    monkeypatch.setattr(gauge_module.TrainingGauge, "end_step", fail)
    callback = GaugeCallback()
    assert train(tmp_path, [callback], max_steps=2).state.global_step == 2
    assert "a defect" in callback.record.warnings[0].message


@pytest.mark.thorough
def test_ctrl_c_keeps_the_figures_so_far(tmp_path):
    from transformers import TrainerCallback

    from torchgauge.integrate.transformers import GaugeCallback

    class Interrupting(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 4:
                os.kill(os.getpid(), signal.SIGINT)

    callback = GaugeCallback(save=tmp_path / "run.json")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, [callback, Interrupting()], gradient_accumulation_steps=1)
    assert callback.record.count == 4
    other = GaugeCallback()
    train(tmp_path, [other], max_steps=3)  # which ends the watching of the first
    assert (tmp_path / "run.json").exists()
    assert callback.record.count == 4
    assert callback.record.interrupted
    assert other.record.count == 3


def test_without_a_training_there_is_no_record():
    from torchgauge.integrate.transformers import GaugeCallback

    with pytest.raises(InputError, match="no training"):
        _ = GaugeCallback().record
    with pytest.raises(InputError, match="number of steps"):
        GaugeCallback(window=-1)


def rows(count=22):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    return TensorDataset(x, x[:, :4].contiguous())


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def fit(tmp_path, callbacks, *, model=None, manual=False, **settings):
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = model or mlp(), []
            self.automatic_optimization = not manual

        def training_step(self, batch, _index):
            x, y = batch
            loss = nn.functional.mse_loss(self.net(x), y)
            self.log("train_loss", loss)
            if not loss.is_meta:
                self.losses.append(loss.item())
            if manual:
                self.manual_backward(loss)
                self.optimizers().step()
            return loss

        def validation_step(self, batch, batch_idx):
            self.net(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    usual = {"max_epochs": 2, "accumulate_grad_batches": 2, "log_every_n_steps": 1}
    usual["logger"] = False
    trainer = pl.Trainer(
        default_root_dir=tmp_path, callbacks=callbacks, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        **(usual | settings),
    )  # fmt: skip
    loader = DataLoader(rows(), batch_size=4)
    trainer.fit(module, loader, DataLoader(rows(8), batch_size=4))
    return trainer, module


@pytest.mark.thorough
def test_lightning_is_told_of_and_unchanged(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    from torchgauge.integrate.lightning import GaugeCallback

    callback = GaugeCallback(save=tmp_path / "run.json")
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    trainer, module = fit(tmp_path, [callback], logger=logger)
    record = callback.record
    assert (record.count, record.rated, record.samples) == (6, 4, 6 + 8 + 8 + 6)
    assert record.micro_batches == 2
    assert record.utilization.mfu == pytest.approx(
        MLP_FLOPS_A_SAMPLE * record.samples / record.time / 1e12, rel=0.001
    )
    assert 0 < record.data_wait < record.time
    assert not record.warnings
    assert "torchgauge/mfu" in (tmp_path / "lightning_logs/version_0/metrics.csv").read_text()
    _, plain = fit(tmp_path, [])
    assert plain.losses == module.losses
    assert "training_step" not in vars(type(trainer))


@pytest.fixture
def _handler_of_ctrl_c():
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)  # Lightning ignores it from then on


@pytest.mark.thorough
@pytest.mark.usefixtures("_handler_of_ctrl_c")
def test_ctrl_c_in_lightning_keeps_the_figures_so_far(tmp_path):
    import lightning.pytorch as pl

    from torchgauge.integrate.lightning import GaugeCallback

    class Interrupting(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 3:
                raise KeyboardInterrupt

    callback = GaugeCallback()
    with pytest.raises(SystemExit):
        fit(tmp_path, [callback, Interrupting()], accumulate_grad_batches=1)
    assert callback.record.count == 3
    assert callback.record.interrupted


@pytest.mark.thorough
@pytest.mark.usefixtures("_alone")
def test_the_memory_of_lightning_s_steps_is_watched(tmp_path):
    with tg.timeline(memory=True) as run:
        fit(tmp_path, [], max_epochs=3)
    memory = run.record.memory
    assert [step.number for step in memory.steps] == [3, 4, 5, 6, 7]
    assert memory.growth == 0
    assert "kept-memory" not in [finding.id for finding in run.record.findings]


@pytest.mark.thorough
def test_manual_optimization_of_lightning_has_no_mfu(tmp_path):
    from torchgauge.integrate.lightning import GaugeCallback

    callback = GaugeCallback(tokens=lambda batch: 3 * len(batch[0]))
    fit(tmp_path, [callback], manual=True, accumulate_grad_batches=1, max_epochs=1)
    assert (callback.record.count, callback.record.utilization) == (6, None)
    assert "manually" in callback.record.unknown
    assert callback.record.tokens == 3 * callback.record.samples == 3 * 14


def loop(gauged, model=None, **settings):
    """Train by a loop with Accelerate for two epochs; return the losses and the gauge."""
    from accelerate import Accelerator

    from torchgauge.integrate.accelerate import Gauge

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = model or mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows(), 4))
    steps, seen = [], 0
    gauge = Gauge(accelerator, model, loader, **settings)
    with gauge if gauged else torch.enable_grad():
        for _ in range(2):
            for x, y in loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.mse_loss(model(x), y)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                steps.append(loss.item())
                seen += len(x)
            with torch.no_grad():
                model(torch.zeros(99, 8))
    return steps, gauge


def test_a_loop_with_accelerate_is_told_of_and_unchanged(tmp_path):
    steps, gauge = loop(gauged=True, save=tmp_path / "run.json")
    record = gauge.record
    assert (record.count, record.rated, record.samples) == (6, 4, 6 + 8 + 8 + 6)
    assert record.micro_batches == 2
    assert record.utilization.mfu == pytest.approx(
        MLP_FLOPS_A_SAMPLE * record.samples / record.time / 1e12, rel=0.001
    )
    assert not record.warnings
    assert (tmp_path / "run.json").exists()
    plain, _ = loop(gauged=False)
    assert plain == steps
    assert math.isfinite(sum(steps))


class TakesGradients(nn.Module):
    """A two-layer net, and a forward that takes its gradients."""

    def __init__(self, method):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.method = method

    def forward(self, x, labels=None):
        with torch.enable_grad():
            out = self.method(self.net, x)
        if labels is None:
            return out
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    def state(self):
        return [(p.tolist(), p.requires_grad, p.grad is None) for p in self.parameters()]


def forces(net, x):
    x = x.detach().requires_grad_()
    return -torch.autograd.grad(net(x).sum(), x, create_graph=True)[0][:, :4]


def gradients_of_samples(net, x):
    return torch.func.vmap(torch.func.grad(lambda row: net(row).sum()))(x)[:, :4]


def adapted(net, x):
    """Return the outputs after one step of gradient descent, as meta-learning takes it."""
    weights = dict(net.named_parameters())
    call = torch.func.functional_call
    slopes = torch.func.grad(lambda w: call(net, w, (x,)).square().mean())(weights)
    return call(net, {name: w - 0.1 * slopes[name] for name, w in weights.items()}, (x,))


def attacked(net, x):
    copied = x.detach().clone().requires_grad_()
    net(copied).square().sum().backward(inputs=[copied])
    return net(x + 0.1 * copied.grad.sign())


FIRST, SECOND = 2 * 8 * 16, 2 * 16 * 4  # FLOPs of the layers, and of each of their gradients
BOTH = FIRST + SECOND
GRADIENTS = [
    # Forward and its gradient. Then the weights' gradients from that one, what goes on from its
    # last product to the activations, and from these to the first layer's weights and to x.
    (forces, 2 * BOTH + BOTH + FIRST + 2 * FIRST),
    (gradients_of_samples, 2 * BOTH + BOTH + FIRST + FIRST),  # here x has no gradient
    # Two forwards, and the backward pass of each, which needs no gradient of x. Then back through
    # the first one's: both operands of its three products but x, and again as of any forward.
    (adapted, 2 * (BOTH + BOTH + SECOND) + FIRST + 4 * SECOND + BOTH + SECOND),
    (attacked, 3 * BOTH + BOTH + SECOND),
]


@pytest.mark.parametrize(("method", "flops"), GRADIENTS)
def test_gradients_in_the_forward_are_counted_and_left_alone(method, flops):
    watched, plain = TakesGradients(method), TakesGradients(method)
    record = loop(gauged=True, model=watched)[1].record
    used = record.utilization
    assert used.model_flops * record.rated == flops * record.samples
    assert (record.counted, used.at_least, record.warnings) == (record.rated, False, ())
    loop(gauged=False, model=plain)
    assert watched.state() == plain.state()


@pytest.mark.thorough
@pytest.mark.parametrize(("method", "flops"), GRADIENTS)
def test_gradients_in_the_forward_are_counted_by_callbacks(method, flops, tmp_path):
    from torchgauge.integrate import lightning, transformers

    class Pairs(Words):
        def __getitem__(self, index):
            x, labels = rows()[index]
            return {"x": x, "labels": labels}

    for kind, training in (
        (lightning, lambda callbacks, model: fit(tmp_path, callbacks, model=model)),
        (transformers, lambda callbacks, model: train(tmp_path, callbacks, model, data=Pairs())),
    ):
        watched, plain = TakesGradients(method), TakesGradients(method)
        callback = kind.GaugeCallback()
        training([callback], watched)
        record = callback.record
        assert record.utilization.model_flops * record.rated == flops * record.samples
        assert (record.counted, record.warnings) == (record.rated, ())
        training([], plain)
        assert watched.state() == plain.state()
