"""What counting and recording do with private names of torch (`torch_private`)."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from torchgauge import torch_private
from torchgauge.signals import restoring


class DispatchMode(torch_private.DispatchMode):  # type: ignore[misc]
    """A dispatch mode whose `__torch_dispatch__` is called as it is, every time, for any operator.

    By default it is wrapped so that Dynamo leaves it alone, which doubles its time; a subclass
    marks its code by `never_compiled` instead.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def never_compiled(function: Callable[..., Any], *, below: bool = False) -> None:
    """Have Dynamo run the function's code as it is; with `below` also what it calls."""
    frames = torch_private.frames  # which does not load torch._dynamo, for a second
    callees = frames._FrameAction.SKIP if below else frames._FrameAction.DEFAULT
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, callees)
    frames.set_code_exec_strategy(function.__code__, strategy)


def never_traced(hook: Callable[..., Any]) -> None:
    """Have Dynamo break a graph where it would trace the hook, and run the hook as it is."""
    never_compiled(hook, below=True)
    vars(hook)["_torchdynamo_disable"] = True


modes: Callable[[], list[Any]] = torch_private.dispatch_modes


@restoring
def unseen() -> Iterator[None]:
    """Run the block below no dispatch mode: a signal within would leave the modes half removed."""
    with torch_private.without_modes():
        yield


def without_mode(mode: DispatchMode) -> None:
    """Take a mode of this thread off; those that were entered after it stay on."""
    if mode in modes():
        above = modes()[modes().index(mode) + 1 :]
        for _ in above:
            torch_private.pop_mode()
        mode.__exit__(None, None, None)
        for other in above:
            torch_private.push_mode(other)


# −1 outside of a backward pass.
graph_task: Callable[[], int] = torch_private.graph_task
current_node: Callable[[], Any] = torch_private.current_node
# The number that the next autograd node of this thread will get.
sequence_number: Callable[[], int] = torch_private.sequence_number
# Every backward pass that Python starts is below a frame of this code.
backward_code: Any = torch_private.backward.__code__
# (pack, unpack) of the saved tensor hooks that are in force; None where there are none.
innermost_hooks: Callable[[bool], Any] = torch_private.saved_tensor_hooks
DISABLED_DISPATCH: Any = torch_private.no_dispatch
# Raised through modules that a checkpoint runs again, once it has all that backward needs.
EARLY_STOP: Any = torch_private.EarlyStop

TORCH_FOLDER = str(Path(torch.__file__).parent)
# Inductor's table of sources without stack traces, which change how it compiles.
_NODES_ALONE = 2


def in_checkpoint() -> bool:
    """Whether a checkpoint runs its part again: inside of it gradients may be off as well."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not backward_code:
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            return True
        frame = frame.f_back
    return False


def node_number(node: Any) -> int | None:
    """Return the autograd node's sequence number; None for nodes without (AccumulateGrad)."""
    number = None if node is None else int(node._sequence_nr())
    return None if number is None or number >= 2**63 else number


def decomposed(function: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator by its composite kernel, so that the operators it is made of arrive."""
    keys = torch_private.DispatchKey
    if isinstance(function, torch_private.HigherOrderOperator):
        return function.dispatch(keys.CompositeExplicitAutograd, *args, **kwargs)
    return function._op_dk(keys.CompositeImplicitAutograd, *args, **kwargs)


def aten_operator(name: str) -> Any:
    """Return the overload of an aten operator by its name, "lstm.input" or "dropout"."""
    packet, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), variant or "default")


def is_torchs(frame: FrameType) -> bool:
    """Return whether the frame runs torch's own code."""
    return frame.f_code.co_filename.startswith(TORCH_FOLDER)


def storage_key(tensor: torch.Tensor) -> int:
    """Return what identifies the tensor's storage while it lives, on meta and fake tensors too."""
    return int(tensor.untyped_storage()._cdata)


def is_compiled(module: Any) -> bool:
    """Return whether torch.compile made the module, or its `compile` was called."""
    # Looked up without nn.Module.__getattr__, which is slow where there is nothing.
    own = vars(module)
    return (
        "_torchdynamo_orig_callable" in own
        or "_orig_mod" in own.get("_modules", ())
        or own.get("_compiled_call_impl") is not None
        or any(map(is_compiled_function, own.values()))
    )


def is_compiled_function(value: Any) -> bool:
    """Return whether torch.compile made the function."""
    attributes = getattr(value, "__dict__", None)
    return isinstance(attributes, dict) and "_torchdynamo_orig_callable" in attributes


def dynamo() -> Any:
    """Return Dynamo's counters and metrics; None where it was not loaded, which takes a second."""
    return sys.modules.get("torch._dynamo.utils")


def generated_code() -> list[ModuleType]:
    """Return the modules that Inductor wrote in this process, in their order."""
    inductor = sys.modules.get("torch._inductor.codecache")
    return list(getattr(getattr(inductor, "PyCodeCache", None), "modules", ()))


@restoring
def graphs_seen(
    look: Callable[[Any, Any], contextlib.AbstractContextManager[object]],
) -> Iterator[None]:
    """Enter what `look` makes of a graph around each time that Dynamo hands one to a backend.

    It is given the graph and the object whose method is compiled, None of a function. Where Dynamo
    is not loaded yet, or a version of torch does it otherwise, nothing is seen.
    """
    graphs = getattr(sys.modules.get("torch._dynamo.output_graph"), "OutputGraph", None)
    original = getattr(graphs, "call_user_compiler", None)
    if graphs is None or original is None:
        yield
        return

    this_thread = threading.get_ident()

    def call_user_compiler(self: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != this_thread:
            return original(self, module, *args, **kwargs)
        with look(module.graph, _method_owner(self)):
            return original(self, module, *args, **kwargs)

    graphs.call_user_compiler = call_user_compiler
    try:
        yield
    finally:
        graphs.call_user_compiler = original


def _method_owner(output_graph: Any) -> Any:
    variables = getattr(output_graph, "local_scope", None) or {}
    code = getattr(getattr(output_graph, "root_tx", None), "f_code", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    return variables.get("self", variables.get(first))


@restoring
def kernel_sources(keep: Callable[[str, str | None], object]) -> Iterator[None]:
    """Have Inductor tell which nodes its kernels are made of; `keep` gets its table by code key.

    The setting is part of the key of Inductor's cache: what was compiled without it is compiled
    once more. Where Inductor is not loaded, or a version of torch differs, nothing is kept.
    """
    config = sys.modules.get("torch._inductor.config")
    level = getattr(getattr(config, "trace", None), "provenance_tracking_level", None)
    if config is None or level is None:
        yield
        return
    owner = torch_private.CompiledGraph
    original = owner.post_compile

    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        keep(str(self.cache_key), getattr(self, "inductor_provenance_mapping_str", None))
        return original(self, *args, **kwargs)

    owner.post_compile = post_compile
    try:
        with config.patch({"trace.provenance_tracking_level": level or _NODES_ALONE}):
            yield
    finally:
        owner.post_compile = original


def draw_as_eager() -> None:
    """Have what is compiled from now on draw the random numbers that eager code draws."""
    torch_private.compiler_settings.fallback_random = True
