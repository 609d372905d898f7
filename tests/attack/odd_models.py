"""Models as nobody should write them and somebody does: each with inputs, made anew."""

from __future__ import annotations

import array
import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import locale
import logging
import os
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

X = (2, 4)
MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {}


def model(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a factory of a model on a float tensor of 2 × 4, or of a pair with its inputs."""

    def make() -> tuple[Any, Any]:
        made = function()
        return made if isinstance(made, tuple) else (made, torch.ones(X))

    MODELS[function.__name__] = make
    return function


class Base(nn.Module):
    """Runs `change(self)` and then one layer; the others of this file say what is changed."""

    def __init__(self, change: Callable[[Any], Any] = lambda _: None, **attributes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.change = change
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        self.change(self)
        return self.linear(x)


def changing(name: str, change: Callable[[Any], Any], **attributes: Callable[[], Any]) -> None:
    """Register a model whose forward changes its attributes, which are made anew."""
    MODELS[name] = lambda: (
        Base(change, **{key: make() for key, make in attributes.items()}), torch.ones(X)
    )  # fmt: skip


# What an attribute holds.
changing("counter", lambda m: m.c.update(a=1), c=collections.Counter)
changing("deque", lambda m: m.d.append(1), d=lambda: collections.deque([0], 3))
changing("defaultdict", lambda m: m.d["a"].append(1), d=lambda: collections.defaultdict(list))
changing("ordered", lambda m: m.d.move_to_end("a"), d=lambda: collections.OrderedDict(a=1, b=2))
changing("nested_lists", lambda m: m.d[0][0].append(1), d=lambda: [[[1]]])
changing("bytearrays", lambda m: m.b.append(1), b=lambda: bytearray(b"a"))
changing("arrays", lambda m: m.a.append(1.0), a=lambda: array.array("d", [1.0]))
changing("numpy_arrays", lambda m: np.add(m.a, 1, out=m.a), a=lambda: np.zeros(8))
changing("namespaces", lambda m: setattr(m.n, "x", m.n.x + 1), n=lambda: types.SimpleNamespace(x=0))
changing("plain_tensors", lambda m: m.t.add_(1), t=lambda: torch.zeros(3))
changing("tensors_in_lists", lambda m: m.t[0].add_(1), t=lambda: [torch.zeros(3)])
changing("own_random", lambda m: m.r.random(), r=lambda: random.Random(1))
changing("own_generator", lambda m: torch.rand(1, generator=m.g), g=torch.Generator)
changing("iterators", lambda m: next(m.i), i=itertools.count)
changing("parts", lambda m: m.p[0](torch.ones(2, 4)), p=lambda: [nn.BatchNorm1d(4)])


@dataclasses.dataclass
class Stats:
    calls: int = 0
    seen: list = dataclasses.field(default_factory=list)


changing("dataclasses", lambda m: (m.s.seen.append(1), setattr(m.s, "calls", 1)), s=Stats)

# What the module itself is.
changing("attribute_added", lambda m: setattr(m, "more", object()))
changing("buffer_added", lambda m: m.register_buffer("mask", torch.ones(2)))
changing("parameter_replaced", lambda m: setattr(m.linear, "bias", nn.Parameter(torch.ones(4))))
changing("parameter_deleted", lambda m: m.linear._parameters.pop("bias", None) is None
         and m.linear.register_parameter("bias", None))  # fmt: skip
changing("parameter_written", lambda m: m.linear.weight.data.add_(1))
changing("mode_changed", lambda m: m.train(not m.training))
changing("frozen_inside", lambda m: m.linear.requires_grad_(False))
changing("hooks_added", lambda m: m.linear.register_forward_hook(lambda *_: None))
changing("forward_replaced", lambda m: setattr(m.linear, "extra_repr", str))
changing("zeroed_gradients", lambda m: m.zero_grad())


@model
def class_changed():
    class Other(Base):
        pass

    return Base(lambda m: setattr(m, "__class__", Other))


@model
def class_counts():
    class Counting(Base):
        calls = 0
        seen: list = []  # noqa: RUF012

        def forward(self, x):
            type(self).calls += 1
            self.seen.append(1)
            return super().forward(x)

    return Counting()


# What the process is.
changing("seeds", lambda m: (random.seed(1), np.random.seed(1), torch.manual_seed(1)))
changing("draws", lambda m: (random.random(), np.random.rand(), torch.rand(1)))
changing("folder", lambda m: os.chdir("/"))
changing("environment", lambda m: os.environ.update(TORCHGAUGE_ODD="1"))
changing("locales", lambda m: locale.setlocale(locale.LC_ALL, "C"))
changing("signals", lambda m: signal.signal(signal.SIGUSR1, signal.SIG_IGN))
changing("loggers", lambda m: logging.basicConfig(level=1, force=True))
changing("logs", lambda m: logging.getLogger("odd").warning("called"))
changing("filters", lambda m: warnings.simplefilter("ignore"))
changing("warns", lambda m: warnings.warn("odd", stacklevel=2))
changing("prints", lambda m: print("odd"))
changing("writes_to_stderr", lambda m: sys.stderr.write("odd\n"))
changing("dtype", lambda m: torch.set_default_dtype(torch.float64))
changing("threads", lambda m: torch.set_num_threads(1 + torch.get_num_threads() % 2))
changing("grad_mode", lambda m: torch.set_grad_enabled(False))
changing("deterministic", lambda m: torch.use_deterministic_algorithms(True))
changing("torch_patched", lambda m: setattr(torch, "relu", torch.tanh))
changing("path", lambda m: sys.path.append("/odd"))


# What is returned.
@model
def yields():
    class Yields(Base):
        def forward(self, x):
            yield self.linear(x)

    return Yields()


@model
def coroutine():
    class Async(Base):
        async def forward(self, x):
            await asyncio.sleep(0)
            return self.linear(x)

    return Async()


@model
def future():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    made = Base()
    return lambda x: pool.submit(made, x)


@model
def returns_none():
    return lambda x: None


@model
def returns_itself():
    return lambda x: returns_itself


@model
def returns_itself_nested():
    loop: list = []
    loop.append(loop)
    return lambda x: loop


# Threads, interrupts of the ordinary run.
@model
def spawns_threads():
    def run(m):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()

    return Base(run)


@model
def locked():
    return Base(lambda m: m.lock.acquire() and m.lock.release(), lock=threading.Lock())


@model
def raises():
    def fail(_):
        raise ValueError("odd")

    return Base(fail)


@model
def raises_odd_error():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def fail(_):
        raise Odd

    return Base(fail)


@model
def exits():
    return Base(lambda _: sys.exit(0))


@model
def recurses():
    return Base(lambda m: m(torch.ones(X)))


@model
def hook_raises():
    made = Base()

    def fail(*_):
        raise KeyError("odd")

    made.linear.register_forward_hook(fail)
    return made


# How it is made.
@model
def equal_and_unhashable():
    class Equal(Base):
        __hash__ = None

        def __eq__(self, other):
            return True

    return Equal()


@model
def unhashable_inside():
    class Part(nn.Identity):
        __hash__ = None

        def __eq__(self, other):
            return True

    return nn.Sequential(nn.Linear(4, 4), Part())


@model
def unhashable_in_a_function():
    made = equal_and_unhashable()
    made.change = lambda _: 1 / 0
    return lambda x: made(x)


@model
def odd_equality():
    class Odd(Base):
        __hash__ = nn.Module.__hash__

        def __eq__(self, other):
            raise RuntimeError("odd")

    return Odd()


@model
def answers_everything():
    class Anything:
        def __getattr__(self, name):
            return self if not name.startswith("__") else types.SimpleNamespace()

        def __call__(self, x):
            return x * 2

    return Anything()


@model
def answers_qualname():
    class Named:
        __module__ = "odd"

        def __getattr__(self, name):
            return 42

        def __call__(self, x):
            return x * 2

    return Named()


@model
def raises_at_getattr():
    class Refusing:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __call__(self, x):
            return x * 2

    return Refusing()


@model
def false_module():
    class Empty(Base):
        def __bool__(self):
            raise RuntimeError("odd")

        def __len__(self):
            return 0

    return Empty()


@model
def contains_itself():
    made = Base()
    made.again = made
    return made


@model
def contains_itself_deep():
    made = nn.Sequential(Base(), nn.Identity())
    made[0].back = made
    return made


@model
def shared():
    part = nn.Linear(4, 4)
    return nn.Sequential(part, part, nn.ModuleList([part])[0])


@model
def tied():
    made = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    made[0].weight = made[1].weight
    return made


@model
def lazy():
    return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())


@model
def slotted():
    class Slotted:
        __slots__ = ("calls", "linear")

        def __init__(self):
            self.calls, self.linear = [], nn.Linear(4, 4)

        def __call__(self, x):
            self.calls.append(1)
            return self.linear(x)

    return Slotted()


@model
def meta():
    with torch.device("meta"):
        return Base(), torch.ones(X)


@model
def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return Base(), torch.ones(X)


@model
def sparse():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("matrix", torch.eye(4).to_sparse())

        def forward(self, x):
            return torch.sparse.mm(self.matrix, x.T)

    return Sparse()


@model
def quantised():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})


@model
def complex_numbers():
    return nn.Linear(4, 4, dtype=torch.complex64), torch.ones(X, dtype=torch.complex64)


@model
def nan():
    made = nn.Linear(4, 4)
    made.weight.data.fill_(float("nan"))
    return made


@model
def no_samples():
    return nn.Linear(4, 4), torch.ones(0, 4)


@model
def no_features():
    return nn.Identity(), torch.ones(2, 0)


@model
def no_parameters():
    return nn.Module(), torch.ones(X)


@model
def no_inputs():
    return (lambda: torch.ones(X) * 2), None


@model
def writes_to_inputs():
    return lambda x: x.add_(1)


@model
def scripted():
    return torch.jit.script(nn.Sequential(nn.Linear(4, 4)))


@model
def nested_tensors():
    return nn.Linear(4, 4), torch.nested.nested_tensor([torch.ones(1, 4), torch.ones(3, 4)])


@model
def in_inference_mode():
    with torch.inference_mode():
        return nn.Linear(4, 4), torch.ones(X)


@model
def partial_of_a_method():
    return functools.partial(Base().forward)


@model
def not_callable():
    return object()


@model
def a_class():
    return nn.Identity, torch.ones(X)


@model
def wrong_inputs():
    return Base(), torch.ones(2, 5)


@model
def strange_names():
    return nn.ModuleDict({"\x1b[31m": nn.Linear(4, 4), "": nn.Identity()} if False else
                         {"\x1b[31m": nn.Linear(4, 4)})  # fmt: skip


@model
def closes_stdout():
    return Base(lambda _: sys.stdout.flush())
