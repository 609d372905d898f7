"""See what a model is called with while it is trained, by a hook that no copy of the model has."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from torchgauge import torch_private
from torchgauge.analyze.work.utilization import Products, products_of
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, text_of
from torchgauge.measure.training import whole_modules
from torchgauge.measure.work import cost as cost_probe
from torchgauge.records.work.cost import Cost
from torchgauge.signals import restoring
from torchgauge.targets import members
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.concrete_values import with_values
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.modules import copied
from torchgauge.targets.target import Target


@restoring
def watched_calls(model: nn.Module, called: Callable[[Inputs], None]) -> Iterator[None]:
    """Tell `called` of each call of the model that is differentiated, until the block ends.

    The model must be the outermost: torch.compile would compile the hook of one inside.
    """
    handle = model.register_forward_pre_hook(_CallHook(model, called), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


class _CallHook:
    """The hook; in a copy of the model, or a pickled one, is one in its place that does nothing."""

    def __init__(self, model: nn.Module, called: Callable[[Inputs], None]) -> None:
        self._model = model
        self._called = called

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module is self._model and module.training and torch.is_grad_enabled():
            self._called(Inputs(args, kwargs))

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return no_hook

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return the_no_hook, ()


def no_hook(_module: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """Do nothing before a call."""


def the_no_hook() -> Callable[..., None]:
    """Return what a pickled hook becomes."""
    return no_hook


Module = TypeVar("Module", bound=nn.Module)
# Of a call that reads values, and is counted on the CPU with random ones: some seconds of work.
MOST_FLOPS_WITH_VALUES = 10**11
_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


class BatchFlops:
    """Counts what a batch's call and its backward pass multiply; `reason` says why it cannot.

    `method` of the module is what a training calls with a batch. `dtype` is the one that autocast
    gives products of float32, as torch names it. `division` is known once a batch is counted.
    """

    def __init__(self, module: nn.Module, method: str = "__call__", dtype: str = "") -> None:
        self.reason = ""
        self.division = whole_modules.Division()
        self._dtype = dtype
        self._module = module
        self._method = method
        self._call: TrainingCall | None = None
        self._fake_call: TrainingCall | None = None
        self._fake_mode: Any = None

    def products(self, inputs: Inputs) -> Products | None:
        """Return the products of a call with inputs of these shapes; None if not countable."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user's code warned in the training already
                if self._call is None:
                    self.division = whole_modules.division(self._module)
                    self._call = TrainingCall(without_values(self._module), self._method)
                cost = self._cost(inputs.map(whole_modules.unsharded))
        except TorchgaugeError as error:
            self.reason = (error.cause or error.message).rstrip(".")
            return None
        except Exception as error:  # noqa: BLE001 - the user's training must not fail by its count
            self.reason = f"counting failed: {text_of(error)}".rstrip(".")
            return None
        products = products_of(cost)
        dtype = self._dtype or self.division.dtype
        if dtype and "float32" in products.by_dtype:
            by_dtype = dict(products.by_dtype)
            by_dtype[dtype] = by_dtype.pop("float32") + by_dtype.get(dtype, 0)
            products = products._replace(by_dtype=by_dtype)
        return products

    def _cost(self, inputs: Inputs) -> Cost:
        """Count on meta, else with fake tensors, else on the CPU with random values if small."""
        assert self._call is not None  # noqa: S101 - made before
        if self._fake_mode is None:
            try:
                return cost_probe.measure(self._call, inputs, backward=True, device="meta")
            except MeasurementError:
                self._fake_mode = torch_private.FakeTensorMode()
                self._fake_call = copy_with(self._call, self._fake)
        assert self._fake_call is not None  # noqa: S101 - made with its mode
        try:
            return cost_probe.measure(
                self._fake_call, inputs.map(self._fake), backward=True, device="cpu"
            )
        except MeasurementError:
            elements = sum(tensor.numel() for _, tensor in inputs.tensors())
            weights = sum(tensor.numel() for tensor in members.parameters(self._call))
            if 6 * weights * elements > MOST_FLOPS_WITH_VALUES:
                raise
        target = with_values(Target(self._call, inputs, "", "module", ""))
        return cost_probe.measure(target.model, target.inputs, backward=True, device="cpu")

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        with self._fake_mode:
            fake: torch.Tensor = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
        return fake


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
        if not any(tensor.requires_grad for tensor in tensors_in(outputs)):
            raise InputError(
                "The call returns nothing to train on.",
                id="no-loss",
                cause="what the model returned has no gradient",
            )
        return outputs


def without_values(module: nn.Module) -> nn.Module:
    """Return a copy whose tensors are on the meta device.

    Parameters that are divided among devices are whole in it. Raises InputError `sharded-model`
    where tensors are of a kind of their own (quantized), `not-copyable`.
    """
    module = whole_modules.unwrapped(module, keeps_fsdp=True)
    return copy_with(module, lambda tensor: torch.empty_like(tensor, device="meta"))


def copy_with(module: Module, replacement: Callable[[torch.Tensor], torch.Tensor]) -> Module:
    """Return a copy of a module with another tensor in the place of each.

    Raises InputError `sharded-model` for tensors of a kind of their own, `not-copyable`.
    """
    memo: dict[int, Any] = {}
    for tensor in _tensors(module):
        if whole_modules.is_distributed(tensor):
            empty = replacement(whole_modules.unsharded(tensor))
        elif type(tensor) in _PLAIN:
            empty = replacement(tensor.detach())
        else:
            raise whole_modules.sharded(type(tensor).__name__)
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = empty
    pairs = whole_modules.prepare(module, memo)
    whole_modules.fill(pairs, memo)
    copy: Module = copied(module, memo)
    whole_modules.put_whole_parameters(module, memo, replacement)
    return copy


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for submodule in module.modules():
        for value in () if whole_modules.holds_flat(submodule) else vars(submodule).values():
            yield from tensors_in(value, objects=False)
