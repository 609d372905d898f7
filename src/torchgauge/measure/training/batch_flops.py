"""The FLOPs of a training's calls, each shape counted once on a copy of the model without values.

The copy has its tensors on the meta device: it takes no memory, and counting neither runs the
user's model nor draws random numbers of the process.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from torchgauge.analyze.work.utilization import Products, products_of
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, text_of
from torchgauge.measure.work import cost as cost_probe
from torchgauge.records.work.cost import Cost
from torchgauge.targets import members
from torchgauge.targets.inputs.concrete_values import with_values
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.modules import copied
from torchgauge.targets.target import Target

# Of a call that reads values, and is counted on the CPU with random ones: some seconds of work.
MOST_FLOPS_WITH_VALUES = 10**11
_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
_WRAPPERS = ("DistributedDataParallel", "OptimizedModule")
_SHARDED = ("FullyShardedDataParallel", "DataParallel", "DeepSpeedEngine", "PipelineEngine")


class BatchFlops:
    """Counts what a batch's call and its backward pass multiply; `reason` says why it cannot.

    `method` of the module is what a training calls with a batch. `dtype` is the one that autocast
    gives products of float32, as torch names it.
    """

    def __init__(self, module: nn.Module, method: str = "__call__", dtype: str = "") -> None:
        self.reason = ""
        self._dtype = dtype
        self._module = module
        self._method = method
        self._call: TrainingCall | None = None

    def products(self, inputs: Inputs) -> Products | None:
        """Return the products of a call with inputs of these shapes; None if not countable."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user's code warned in the training already
                if self._call is None:
                    self._call = TrainingCall(without_values(self._module), self._method)
                cost = self._cost(inputs.map(lambda tensor: tensor.detach().to("meta")))
        except TorchgaugeError as error:
            self.reason = (error.cause or error.message).rstrip(".")
            return None
        except Exception as error:  # noqa: BLE001 - the user's training must not fail by its count
            self.reason = f"counting failed: {text_of(error)}".rstrip(".")
            return None
        products = products_of(cost)
        if self._dtype and "float32" in products.by_dtype:
            by_dtype = dict(products.by_dtype)
            by_dtype[self._dtype] = by_dtype.pop("float32") + by_dtype.get(self._dtype, 0)
            products = products._replace(by_dtype=by_dtype)
        return products

    def _cost(self, inputs: Inputs) -> Cost:
        assert self._call is not None  # noqa: S101 - made before
        try:
            return cost_probe.measure(self._call, inputs, backward=True, device="meta")
        except MeasurementError:
            elements = sum(tensor.numel() for _, tensor in inputs.tensors())
            weights = sum(tensor.numel() for tensor in members.parameters(self._call))
            if 6 * weights * elements > MOST_FLOPS_WITH_VALUES:
                raise
        target = with_values(Target(self._call, inputs, "", "module", ""))
        return cost_probe.measure(target.model, target.inputs, backward=True, device="cpu")


class TrainingCall(nn.Module):
    """What a training calls with a batch, down to the loss where the outputs name one."""

    def __init__(self, module: nn.Module, method: str = "__call__") -> None:
        super().__init__()
        self.module = module
        self._method = method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, and return its loss or all its outputs."""
        outputs = getattr(self.module, self._method)(*args, **kwargs)
        if isinstance(outputs, Mapping) and outputs.get("loss") is not None:
            outputs = outputs["loss"]
        leaves = tree_leaves(outputs)
        if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
            raise InputError(
                "The call returns nothing to train on.",
                id="no-loss",
                cause="what the model returned has no gradient",
            )
        return outputs


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module inside of wrappers that leave its parameters whole.

    Raises InputError `sharded-model` for a module whose parameters are divided among devices.
    """
    while True:
        names = {kind.__name__ for kind in type(module).__mro__}
        if sharding := names & set(_SHARDED):
            raise _sharded(sharding.pop())
        if not names & set(_WRAPPERS):
            return module
        module = getattr(module, "_orig_mod", None) or module.module


def without_values(module: nn.Module) -> nn.Module:
    """Return a copy whose tensors are on the meta device.

    Raises InputError `sharded-model` where tensors are of a kind of their own (DTensor, quantized),
    `not-copyable`.
    """
    module = unwrapped(module)
    memo: dict[int, Any] = {}
    for tensor in _tensors(module):
        if type(tensor) not in _PLAIN:
            raise _sharded(type(tensor).__name__)
        empty = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = empty
    for submodule in module.modules():
        if {kind.__name__ for kind in type(submodule).__mro__} & set(_SHARDED):
            raise _sharded(type(submodule).__name__)
    copy: nn.Module = copied(module, memo)
    return copy


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for submodule in module.modules():
        for leaf in tree_leaves(list(vars(submodule).values())):
            if isinstance(leaf, torch.Tensor):
                yield leaf


def _sharded(kind: str) -> InputError:
    return InputError(
        f"The FLOPs of a {kind} cannot be counted during a training.",
        id="sharded-model",
        cause=f"the model or its parameters are of {kind}, of which no copy without values is made",
        remedy="Count one rank of such a job with tg.count_parallel.",
    )
