"""Gives a TorchScript program its layers back: its submodules, called from Python while observed.

TorchScript runs in an interpreter where no call of a module is seen. While something observes them,
a method that calls submodules runs from here: the calls are those of modules, and what lies between
them runs in that interpreter still, as functions cut out of the method's graph. Otherwise the
program runs as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn

from torchgauge.targets.hygiene.functions import ORIGINAL
from torchgauge.targets.loaders.script_methods import CannotFollowError, Method, calls_layers


class Layer(nn.Module):
    """A module of a TorchScript program; has its tensors, and runs its methods."""

    script: Any
    methods: dict[str, Method]

    @property
    def training(self) -> bool:
        """Whether the program is in training mode; a frozen one has none."""
        return bool(getattr(vars(self).get("script"), "training", False))

    @training.setter
    def training(self, mode: bool) -> None:
        script = vars(self).get("script")
        if script is not None and hasattr(script, "training"):
            script.training = mode

    def forward(self, method: str, *operands: Any) -> Any:
        """Run a method of the program's module."""
        return self.run(method, *operands)

    def run(self, method: str, *operands: Any) -> Any:
        """Run a method: from here where it calls submodules."""
        body = self.methods.get(method)
        if body is None:
            return getattr(self.script, method)(*operands)
        return body.run(self, operands)

    def _apply(self, fn: Any, recurse: bool = True) -> Layer:
        """Move or convert the tensors, and give the program the new ones."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is not None:
                self.script._c.setattr(name, tensor)  # noqa: SLF001 - by name, of any kind
        return self


class Program(Layer):
    """The whole program, called as it was saved."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program as it is, or its layers if somebody observes their calls."""
        if hasattr(nn.Module.__call__, ORIGINAL):
            return self.run_layers(*args, **kwargs)
        return self.script(*args, **kwargs)

    def run_layers(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program's layers from here."""
        named = self.script.forward.schema.arguments[1 + len(args) :]
        operands = [kwargs.get(argument.name, argument.default_value) for argument in named]
        return self.run("forward", *args, *operands)


def with_layers(script: torch.jit.ScriptModule) -> nn.Module:
    """Return a module with the layers of a TorchScript program; it shares the program's tensors.

    The program itself where its methods do what cannot be followed from here, or it has no modules.
    """
    try:
        program = _layer(script, Program, {})
    except CannotFollowError:
        return script
    return program if program.methods else script


def if_same(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the model; the program without layers where they do not return what it returns.

    A program may use what has no form in Python; whether it does shows when it runs.
    """
    if not isinstance(model, Program):
        return model
    script, mode = model.script, model.training
    model.training = False
    try:
        with torch.inference_mode():
            truth = script(*args, **kwargs)
            torch.testing.assert_close(model.run_layers(*args, **kwargs), truth, equal_nan=True)
    except Exception:  # noqa: BLE001 - if the program itself raises, that is said where it is run
        return script
    finally:
        model.training = mode
    return model


def _layer(script: Any, base: type[Layer], layers: dict[Any, Layer]) -> Layer:
    layer: Layer = _kind(script.original_name, cast("Any", base))()
    vars(layer).update(script=script, methods={})
    for name, parameter in script._parameters.items():  # noqa: SLF001 - without those below it
        layer._parameters[name] = parameter  # noqa: SLF001 - tensors as the program has them
    for name, buffer in script._buffers.items():  # noqa: SLF001
        layer._buffers[name] = buffer  # noqa: SLF001
    layers[_identity(script)] = layer
    for name, child in script._modules.items():  # noqa: SLF001
        layer._modules[name] = layers.get(_identity(child)) or _layer(child, Layer, layers)  # noqa: SLF001
    for name in script._c._method_names():  # noqa: SLF001
        graph = script._c._get_method(name).graph  # noqa: SLF001
        if calls_layers(graph, script):
            layer.methods[name] = Method(graph, script)
    return layer


def _identity(script: Any) -> Any:
    """Return what a module that has tensors shares with itself under another name.

    A container has more modules than one in it that has its class and tensors.
    """
    tensors = (*script.parameters(), *script.buffers())
    # Tensors on meta have storages and no addresses.
    places = [
        (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape)  # noqa: SLF001
        for tensor in tensors
    ]
    return (script.original_name, len(list(script.modules())), *places) if places else id(script)


@functools.cache
def _kind(name: str, base: Any) -> type[Any]:
    return type(name, (base,), {"__module__": __name__})
