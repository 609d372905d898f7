"""Where a target comes from, so that any process can open it: loaded again, or sent by value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from torchgauge.device.select import resolve
from torchgauge.targets.inputs.batching import check_call
from torchgauge.targets.inputs.content import with_inputs
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.modules import check_model
from torchgauge.targets.placement import Placement, place
from torchgauge.targets.precisions import name_of
from torchgauge.targets.target import Target, TargetRequest


@dataclasses.dataclass(frozen=True)
class Source:
    """A target as a request (command line) or as an object (Python), and how it is to run.

    A request is loaded anew in every process; an object travels to a fresh process by value. The
    inputs are `raw` where something else than the model takes them. `inputs` replace those that
    a request brings.
    """

    target: TargetRequest | Target
    device: str | None = None
    precision: str | None = None
    training: bool = False
    raw: bool = False
    inputs: Inputs | None = None

    @staticmethod
    def of_object(
        model: Callable[..., Any] | Target,
        inputs: Any,
        *,
        device: str | None = None,
        precision: str | None = None,
        training: bool = False,
        raw: bool = False,
    ) -> Source:
        """Return the source for a model (or any callable, or a loaded target) of the caller's.

        `device` None leaves it where it is. Raises InputError as `modules.check_model` and
        `device.select.resolve`.
        """
        device = None if device is None else resolve(device)
        example_inputs = Inputs.of(inputs)
        if not isinstance(model, Target):
            check_model(model)
            kind = "module" if isinstance(model, nn.Module) else "callable"
            name = name_of(model)
            model = Target(model=model, inputs=example_inputs, spec=name, kind=kind, name=name)
        return Source(with_inputs(model, example_inputs), device, precision, training, raw)

    @staticmethod
    def of_request(request: TargetRequest) -> Source:
        """Return the source for a target named on the command line, on a device that is there.

        Raises InputError as `device.select.resolve`.
        """
        request = dataclasses.replace(request, device=resolve(request.device))
        return Source(request, request.device, request.precision, request.training)

    @property
    def is_request(self) -> bool:
        """True where every process loads the target itself."""
        return not isinstance(self.target, Target)

    def on_cpu(self) -> Source:
        """Return the source with values, on the CPU: loaded there, or a copy filled at random."""
        from torchgauge.targets.inputs.concrete_values import with_values

        target: TargetRequest | Target
        if isinstance(self.target, Target):
            target = with_values(self.target)
        else:
            target = dataclasses.replace(self.target, device="cpu")
        return dataclasses.replace(self, target=target, device="cpu")

    def open(self) -> Placement:
        """Load the target where it must be loaded, and place it on its device.

        Raises InputError as loading, `placement.place` and `misfits.check_call`.
        """
        if isinstance(self.target, Target):
            target, owned = self.target, False
        else:
            from torchgauge.targets.loaders.load import load

            target, owned = load(self.target), True
            if self.inputs is not None:
                target = with_inputs(dataclasses.replace(target, inputs=self.inputs), self.inputs)
        placement = place(
            target,
            device=self.device,
            precision=self.precision,
            training=self.training,
            owned=owned,
        )
        if not self.raw:
            check_call(placement.model, placement.inputs)
        return placement
