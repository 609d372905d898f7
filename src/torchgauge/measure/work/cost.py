"""Cost: FLOPs and bytes of one call, counted from the shapes of every operator that it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import getattr_static
from typing import Any

import torch
from torch import nn
from torch.autograd import graph
from torch.nn.parameter import is_lazy

from torchgauge import torch_private
from torchgauge.errors import ModelError
from torchgauge.measure.forward import running
from torchgauge.measure.memory.live_tensors import saved_for_backward
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.measure.recording.scope import observed
from torchgauge.measure.work import internals
from torchgauge.measure.work.counting import Counter
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.measure.work.internals import is_compiled, is_compiled_function, storage_key, unseen
from torchgauge.measure.work.not_called import ParametersRead, not_called, warnings_of
from torchgauge.measure.work.outside import OutsideWork
from torchgauge.measure.work.variation import Variation
from torchgauge.records.record import GradMode, MeasurementWarning
from torchgauge.records.work.cost import NOT_RUN, OUTSIDE, Cost, CostRow
from torchgauge.signals import restoring
from torchgauge.targets import hygiene, members
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.deferred import finished
from torchgauge.targets.holdings import unregistered
from torchgauge.targets.hygiene import Restoration, module_of
from torchgauge.targets.inputs.batching import misfit
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.tensors import strided

# Of a call that ran no operator: whatever it did is not known. A module that returns what it was
# given, or has itself, does nothing, as nn.Identity.
UNSEEN = CostRow(node=0, operator=OUTSIDE, phase="forward", dtype="", calls=1, has_formula=False)
_COMPILES = {"torch._dynamo", "torch.nn.attention.flex_attention"}  # the latter when it is called


def measure(
    model: Callable[..., Any],
    inputs: Inputs,
    *,
    backward: bool = False,
    device: str = "cpu",
    grad_mode: GradMode = "no_grad",
    make_counter: Callable[..., Counter] = Counter,
    flash: bool = True,
    variation: Variation | None = None,
) -> Cost:
    """Run the call once, with real, fake or meta tensors, and count what it does.

    Without `backward` in evaluation mode and `grad_mode`, unless tensors were made in inference
    mode: they may be written to in it alone. With it in training mode, and ones are sent into every
    differentiable output; no loss is counted, nor what made the inputs. What torch.compile made
    runs eager. Tensors without values take the kernels of a GPU, with `flash` attention if it has
    that. `make_counter` gives what adds up the operators. The model, its gradients and the process
    are put back. `variation` is told what may let further calls do other work, and how many calls
    come before the one that is counted. Raises MeasurementError where the call raises.
    """
    modes = None if backward else grad_mode
    for follows in (True, False):
        parameters = ParametersRead(module_of(model))
        counter = make_counter(model, parameters, OwnThreads(), CudaKernels(flash=flash))
        outside = OutsideWork(counter, model, inputs, follows=follows)
        try:
            return _measured(
                model, inputs, counter, outside, modes, device, variation or Variation()
            )
        except ModelError:  # it may not take NumPy's arrays as they are observed
            if not outside.followed or not follows:
                raise
    raise AssertionError("the second try returns or raises")


def _measured(
    model: Callable[..., Any],
    inputs: Inputs,
    counter: Counter,
    outside: OutsideWork,
    grad_mode: GradMode | None,
    device: str,
    variation: Variation,
) -> Cost:
    backward = grad_mode is None
    module = module_of(model)
    modules = [] if module is None else list(module.modules())
    modes = _modes(model, inputs, grad_mode)
    with modes as saved_modes, _noting_what_ran(counter, device, backward=backward):
        inputs = outside.followed_inputs(inputs.leaves() if backward else inputs)
        tensors = _tensors(module, inputs)
        with _as_counted(counter, tensors, counts=False), running(device):
            for _ in range(variation.earlier_calls):
                model(*inputs.args, **inputs.kwargs)
        counter.kernels.kernel_calls.clear()
        with (
            variation.watched_draws(),
            counter.threads.tracking(),
            observed(counter.calls, modules),
            counter.attention.watched(),
            _as_counted(counter, tensors, counts=True),
            outside.watching(),
            running(device, "Counting the model's forward", partial(misfit, model, inputs)),
        ):
            outputs, retained_bytes = _counted(model, inputs, tensors if backward else None)
            has_results = outside.returned(outputs, inputs, tensors)
    variation.progresses |= saved_modes.progressed
    nodes, calls = zip(*counter.calls.nodes(), strict=True)
    rows = counter.rows({call: number for number, call in enumerate(calls)})
    if not rows and (module is None or has_results):
        rows = (UNSEEN,)
    uncalled = not_called(module, counter.calls, counter.parameters.read)
    return Cost(
        nodes=nodes,
        rows=rows,
        backward=backward,
        counted_on=_kind(tensors, device),
        collapsed=tuple(_collapsed(module, modules)),
        not_called=uncalled,
        retained_for_backward=retained_bytes,
        kernels=dict(counter.kernels.kernel_calls),
        warnings=(
            *counter.warnings.values(),
            *outside.warnings(),
            *_compiled(model, modules),
            *warnings_of(uncalled),
            *unregistered(counter.calls.parameters, counter.calls.outside(), "cost"),
            *_thread_warnings(counter.calls.foreign_threads),
            *saved_modes.warnings("cost", lasting_only=True),
        ),
    )


@contextlib.contextmanager
def _as_counted(
    counter: Counter, tensors: tuple[torch.Tensor, ...], *, counts: bool
) -> Iterator[None]:
    """Run what torch.compile made eager, and tensors without values as a GPU's."""
    with (
        _eager(),
        _fake_mode(tensors),
        counter.kernels.dispatched(),
        counter.counting(counts=counts),
    ):
        yield


def _modes(
    model: Callable[..., Any], inputs: Inputs, grad_mode: GradMode | None
) -> contextlib.AbstractContextManager[Restoration]:
    """Return the modes of an inference in its grad mode, of training for None."""
    if grad_mode is None:
        return hygiene.training(model, inputs)
    if any(tensor.is_inference() for tensor in _tensors(module_of(model), inputs)):
        grad_mode = "inference_mode"
    return hygiene.evaluation(model, inputs, grad_mode=grad_mode)


@contextlib.contextmanager
def _noting_what_ran(counter: Counter, device: str, *, backward: bool) -> Iterator[None]:
    """Give the error that the block raises the work up to there, and each layer's shapes."""
    try:
        yield
    except ModelError as error:
        nodes, calls = zip(*counter.calls.nodes(shapes=True), strict=True)
        numbers = {call: number for number, call in enumerate(calls)}
        raised = numbers.get(counter.calls.raised, 0)
        not_run = CostRow(
            node=raised, operator=NOT_RUN, phase="forward", dtype="", calls=1, has_formula=False
        )
        rows = (*counter.rows(numbers), not_run)
        failed = MeasurementWarning.from_error(error, "cost")
        error.ran = Cost(
            nodes=nodes, rows=rows, backward=backward, counted_on=device, warnings=(failed,)
        )
        raise


def _counted(
    model: Callable[..., Any], inputs: Inputs, tensors: tuple[torch.Tensor, ...] | None
) -> tuple[Any, int | None]:
    """Run the call, and with `tensors` its backward pass; return its outputs, bytes retained."""
    if tensors is None:
        return finished(model(*inputs.args, **inputs.kwargs)), None
    for tensor in tensors:
        if tensor.is_leaf:  # the backward pass would add to a gradient, and count the sum
            tensor.grad = None
    with retained(set(_storages(tensors))) as bytes_kept:
        outputs = finished(model(*inputs.args, **inputs.kwargs))
        results = [output for output in tensors_in(outputs) if output.requires_grad]
        retained_bytes = bytes_kept(results)
        if results:
            torch.autograd.backward(results, [_ones(output) for output in results])
    return outputs, retained_bytes


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    with unseen():
        return torch.ones_like(tensor)


def _fake_mode(tensors: tuple[torch.Tensor, ...]) -> contextlib.AbstractContextManager[object]:
    """Return the mode of the fake tensors: what the call makes itself must be fake as well."""
    for tensor in tensors:
        if isinstance(tensor, torch_private.FakeTensor):
            mode: contextlib.AbstractContextManager[object] = tensor.fake_mode
            return mode
    return contextlib.nullcontext()


@restoring
def _eager() -> Iterator[None]:
    """Run what torch.compile made as the Python it was made from."""
    if not _COMPILES & sys.modules.keys():  # nothing was compiled, and importing Dynamo is slow
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _compiled(model: Callable[..., Any], modules: list[nn.Module]) -> Iterator[MeasurementWarning]:
    if "torch._dynamo" not in sys.modules:
        return
    forwards = (getattr_static(kind, "forward", None) for kind in set(map(type, modules)))
    if any(map(is_compiled_function, (model, *forwards))) or any(map(is_compiled, modules)):
        yield MeasurementWarning(
            id="counted-eager",
            message="A compiled part was counted by running it eager: what fusion saves in bytes "
            "is not seen.",
            probe="cost",
        )


def _thread_warnings(threads: Iterable[str]) -> Iterator[MeasurementWarning]:
    if names := list(threads):
        yield MeasurementWarning(
            id="threads-not-counted",
            message=f"Layers of the model ran meanwhile on threads that the call has not given "
            f"work: {', '.join(names)}. That is not counted.",
            probe="cost",
            cause="Threads count that the call starts itself, or hands work to by a "
            "ThreadPoolExecutor.",
            remedy="Where they work for the call, its figures are too small; otherwise they hold.",
        )


def _collapsed(module: nn.Module | None, modules: list[nn.Module]) -> Iterator[str]:
    if module is None or not any(isinstance(m, torch.jit.ScriptModule) for m in modules):
        return
    if isinstance(module, torch.jit.ScriptModule):
        yield type(module).__name__
        return
    inside = ""
    for name, submodule in module.named_modules():
        if isinstance(submodule, torch.jit.ScriptModule) and not (
            inside and name.startswith(inside)
        ):
            inside = name + "."
            yield name


def _kind(tensors: tuple[torch.Tensor, ...], device: str) -> str:
    if not tensors:
        return device
    return (
        "fake" if isinstance(tensors[0], torch_private.FakeTensor) else str(tensors[0].device.type)
    )


def _tensors(module: nn.Module | None, inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """Return what the model has and is given, without what is lazy or offloaded."""
    running = members.offloaded(module)
    tensors = (*members.tensors(module), *(tensor for _, tensor in inputs.tensors()))
    return tuple(t for t in tensors if not is_lazy(t) and id(t) not in running)


def _storages(tensors: tuple[torch.Tensor, ...]) -> Iterator[int]:
    for tensor in tensors:
        with contextlib.suppress(RuntimeError, NotImplementedError):
            yield storage_key(tensor)


@restoring
def retained(excluded: set[Any]) -> Iterator[Callable[[list[torch.Tensor]], int]]:
    """Yield a function of the outputs: the bytes saved so far, without `excluded` storages.

    Hooks tell what is saved. torch.func refuses to work under hooks: they are set aside for as long
    as it transforms, and what was saved meanwhile is found in the graph of the outputs.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    saved: dict[Any, tuple[Any, int]] = {}
    transformed: list[range] = []
    disabled = graph.disable_saved_tensors_hooks

    def note(tensor: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse: no single storage
            storage, key = tensor.untyped_storage(), internals.storage_key(tensor)
            if key not in excluded:
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                saved[key] = (reference, storage.nbytes())
        return tensor

    @contextlib.contextmanager
    def disabled_without_ours(error_message: str) -> Iterator[None]:
        if internals.innermost_hooks(False) != (
            note,
            _unchanged,
        ):  # those of the model: it fails anyway
            with disabled(error_message):
                yield
            return
        hooks.__exit__()
        first = internals.sequence_number()
        try:
            with disabled(error_message):
                yield
        finally:
            transformed.append(range(first, internals.sequence_number()))
            hooks.__enter__()

    def saved_bytes(outputs: list[torch.Tensor]) -> int:
        with internals.unseen():
            for node, tensor in saved_for_backward(outputs if transformed else []):
                number = internals.node_number(node)
                if any(number in numbers for numbers in transformed):
                    for part in strided(tensor):
                        note(part)
        return sum(size for reference, size in saved.values() if not reference.expired())

    hooks = graph.saved_tensors_hooks(note, _unchanged)
    graph.disable_saved_tensors_hooks = disabled_without_ours
    try:
        with hooks:
            yield saved_bytes
    finally:
        graph.disable_saved_tensors_hooks = disabled


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
