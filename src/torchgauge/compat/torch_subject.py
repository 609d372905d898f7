"""The Subject of a model of torch: every figure is that of `api`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from torchgauge.analyze.memory.training_memory import Trainable
from torchgauge.api.measurements import count_cost, measure_latency, measure_memory, measure_size
from torchgauge.compat.subject import Backward, Shape
from torchgauge.device.roofs.roofs import known_roofs, quick
from torchgauge.errors import MeasurementError
from torchgauge.records.latency.latency import Latency
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets import members
from torchgauge.targets.inputs.content import batch_of
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.named_training import mean_of_outputs
from torchgauge.targets.training.training import Training
from torchgauge.turn import turn

_CONVOLUTIONS = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}


class TorchSubject:
    """A torch.nn.Module, or a callable on tensors."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.module = model if isinstance(model, nn.Module) else None

    def parameters(self) -> int | None:
        """Return the elements of its parameters; None of a plain function, and without shapes."""
        size = None if self.module is None else measure_size(self.module)
        return None if size is None or size.uninitialized else size.parameters

    def trainable(self) -> list[Trainable]:
        """Return the parameters that require a gradient."""
        return members.trainable(self.module)

    def inputs(self, shape: Shape) -> Inputs:
        """Return random numbers of the parameters' type, or zeros where the model wants indices."""
        failed: MeasurementError | None = None
        for tensor in self._examples(shape):
            try:
                count_cost(self.model, tensor)
            except MeasurementError as error:
                failed = failed or error
            else:
                return Inputs((tensor,))
        raise failed or AssertionError("there is always an example")

    def _examples(self, shape: Shape) -> Iterator[torch.Tensor]:
        tensors = members.tensors(self.module)
        device = tensors[0].device if tensors else torch.device("cpu")
        real = (
            tensor.dtype for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()
        )
        generator = torch.Generator().manual_seed(0)  # the process's random numbers stay
        values = torch.rand(shape, generator=generator)
        yield values.to(device, next(real, torch.float32))
        yield torch.zeros(shape, dtype=torch.int64, device=device)

    def sample_cost(self, shape: Shape) -> Cost:
        """Return the work of one sample; a dimension of the batch is 1 for it."""
        sample_shape = (1, *shape[1:]) if len(shape) > 1 and not shape[0] else shape
        return self.cost(self.first_sample(self.inputs(sample_shape)))

    def batch(self, inputs: Inputs) -> int | None:
        """Return the leading dimension; 1 of one dimension, and of an image without a batch."""
        shapes = [tuple(tensor.shape) for _, tensor in inputs.tensors()]
        if shapes and all(len(shape) == 1 for shape in shapes):
            return 1
        modules = [] if self.module is None else self.module.modules()
        first = next((module for module in modules if not [*module.children()]), None)
        spatial = next((n for kind, n in _CONVOLUTIONS.items() if isinstance(first, kind)), None)
        if spatial is not None and [len(shape) for shape in shapes] == [spatial + 1]:
            return 1
        return batch_of(inputs)

    def first_sample(self, inputs: Inputs) -> Inputs:
        """Return the first sample of each tensor that has a batch; of no sample one of zeros."""
        batch = self.batch(inputs)
        if batch == 1:
            return inputs

        def first(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.dim() or tensor.shape[0] != batch:
                return tensor
            return tensor[:1] if batch else tensor.new_zeros((1, *tensor.shape[1:]))

        return inputs.map(first)

    def cost(self, inputs: Inputs) -> Cost:
        """Return the work of one call."""
        return count_cost(self.model, inputs)

    def latency(self, inputs: Inputs, warmup: int, iterations: int) -> Latency:
        """Return the time of a call."""
        return measure_latency(
            self.model, inputs, warmup=warmup, iterations=iterations, progress=False
        )

    def memory(self, inputs: Inputs) -> Memory:
        """Return the memory of a call by part."""
        return measure_memory(self.model, inputs)

    def backward(self, inputs: Inputs, warmup: int, iterations: int) -> Backward:
        """Return the phases of training steps with the outputs' mean as the loss."""
        train = Training(loss=mean_of_outputs, optimizer=torch.optim.SGD)
        timed = measure_latency(
            self.model, inputs, train=train, warmup=warmup, iterations=iterations, progress=False
        )
        phases = {stage.name: stage.median for stage in timed.stages}
        work = count_cost(self.model, inputs, backward=True).total(("backward",))
        flops = None if work.at_least else work.flops
        peak = measure_memory(self.model, inputs, train=train).peak  # plain SGD keeps nothing
        forward, backward = phases.get("forward"), phases.get("backward")
        return Backward(forward, backward, flops, estimated=False, peak=peak)

    def roofs(self, cost: Cost) -> Roofs:  # noqa: ARG002 - all dtypes are measured at once
        """Return the roofs that are kept of this device, else what is quickly measured."""
        device = str(next(iter(members.tensors(self.module)), torch.empty(0)).device)
        if stored := known_roofs(device):
            return stored
        with turn():
            return quick(device)
