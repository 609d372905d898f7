"""The one call that every probe measures: a forward pass, or a whole training step."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import torch
from torch.autograd import forward_ad

from torchgauge import torch_private
from torchgauge.errors import MeasurementError, ModelError
from torchgauge.forks import PASSING, Owner, after_fork_in_child
from torchgauge.measure.forward import running, translated
from torchgauge.measure.recording.capture_limit import OwnThreads
from torchgauge.records.record import GradMode
from torchgauge.signals import replaced, restoring, uninterrupted
from torchgauge.targets import hygiene
from torchgauge.targets.deferred import Finishing
from torchgauge.targets.hygiene import Restoration
from torchgauge.targets.hygiene.input_state import InputState
from torchgauge.targets.inputs.batching import misfit
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Phase, Training, TrainingStep
from torchgauge.version import TORCH_DERIVES_IN_INFERENCE, torch_release

T = TypeVar("T")

# Parts of torch that turn gradients on for whoever calls them; others do so for ends of their own,
# and the end of a `no_grad` puts back what was.
_FOR_CALLERS = (
    "torch.autograd.functional",
    "torch.autograd.forward_ad",
    "torch.utils._contextlib",
    "torch._functorch.eager_transforms",
)


def decide(modes: list[GradMode], attempt: Callable[[GradMode], T]) -> T:
    """Return what `attempt` returns in the first of the modes that the forward runs in.

    That one is left in `modes`. A forward that turns gradients on has none of them in
    inference mode, where many functions of torch.autograd return zeros: it is run so only if it
    raises in all other modes. Raises the first error where it raises in each.
    """
    pending, failures = list(modes), dict[GradMode, ModelError]()
    while pending:
        mode = pending.pop(0)
        try:
            with _gradients_requested() as requests:
                result = attempt(mode)
        except ModelError as error:
            if error.id != "forward-raised":
                raise
            failures[mode] = error
            continue
        if requests and mode == "inference_mode" and pending:
            pending.append(mode)
            continue
        modes[:] = [mode]
        return result
    raise _first(failures)


def _first(failures: dict[GradMode, ModelError]) -> ModelError:
    """Return the first error; its cause has those of other modes that differ from it."""
    first = next(iter(failures.values()))
    causes = {first.cause}
    for mode, error in failures.items():
        if error.cause not in causes:
            causes.add(error.cause)
            first.cause += f"\nUnder torch.{mode}: {error.cause}"
    return first


@restoring
def _gradients_requested() -> Iterator[list[bool]]:
    """Yield a list that is not empty once the block has turned gradients on for itself.

    What a newer torch.func derives has gradients in inference mode as well, and is not noted.
    """
    derived_anyway = torch_release() >= TORCH_DERIVES_IN_INFERENCE
    requests: list[bool] = []
    originals: tuple[tuple[Any, str], ...] = (
        (torch.enable_grad, "__enter__"),
        (torch.set_grad_enabled, "__init__"),
        (forward_ad, "enter_dual_level"),
    )

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - of one frame
            for_user = not caller.startswith("torch.") or caller.startswith(_FOR_CALLERS)
            turns_on = function is not set_grad_enabled or True in (*args, *kwargs.values())
            is_derived = derived_anyway and torch_private.functorch_level() is not None
            if for_user and turns_on and not is_derived:
                requests.append(True)
            return function(*args, **kwargs)

        return call

    set_grad_enabled = torch.set_grad_enabled.__init__
    with replaced((owner, name, noting(getattr(owner, name))) for owner, name in originals):
        yield requests


class Modes:
    """The modes and the precision that a target's calls run in, until `undo` closes.

    `saved_state` is what had to be copied in order to be put back.
    """

    def __init__(
        self, placement: Placement, train: Training | None, undo: contextlib.ExitStack
    ) -> None:
        self._placement, self._train, self._undo = placement, train, undo
        self.grad_mode = placement.grad_modes[0]
        self.saved_state = self._enter()

    def change(self, grad_mode: GradMode) -> None:
        """Put back all that calls have changed, and begin again in another grad mode."""
        uninterrupted(self._undo.close)
        earlier, self.grad_mode = self.saved_state, grad_mode
        self.saved_state = uninterrupted(self._enter)
        self.saved_state.altered += earlier.altered
        self.saved_state.failed += earlier.failed

    def _enter(self) -> Restoration:
        placement = self._placement
        inputs = placement.inputs, placement.target.inputs
        if self._train is None:
            modes = hygiene.evaluation(placement.model, *inputs, grad_mode=self.grad_mode)
        else:
            modes = hygiene.training(placement.model, *inputs)
        saved_state = self._undo.enter_context(modes)
        if not _autocasts(placement, self._train):
            self._undo.enter_context(placement.arithmetic())
        return saved_state


class Step:
    """`step()` runs the call once; `step(mark)` also says when each of its phases starts.

    What the user's code raises becomes a ModelError that names the running `subject`. `optimizer`
    is a training step's own; `threads` tells the step's threads from others. `inputs_used`: a call
    has run since the inputs were put back. `lost` are the seconds that the first call took in grad
    modes in which the forward does not run.
    """

    def __init__(self, placement: Placement, train: Training | None, modes: Modes) -> None:
        self.subject = "The model's forward"
        self.device = placement.device
        self.modes = modes
        self.threads = OwnThreads()
        self.optimizer: torch.optim.Optimizer | None = None
        self.lost = 0.0
        self._finishing = Finishing()
        self._placement = placement
        inputs = placement.inputs
        self._inputs: InputState | None = InputState(inputs, modes.saved_state)
        self.inputs_used = False
        self._misfit = functools.partial(misfit, placement.model, inputs)
        self._owner = Owner()
        _steps.add(self)
        self._call: Callable[..., Any]
        self._undecided = train is None and len(placement.grad_modes) > 1
        if train is None:
            self._take(inputs)
            return
        self.subject = "The training step"
        autocast = placement.arithmetic if _autocasts(placement, train) else contextlib.nullcontext
        with running(self.device, "Making the optimizer"):
            training = TrainingStep(placement.model, inputs, train, autocast)
        self._call, self.optimizer = training, training.optimizer

    @property
    def saved_state(self) -> Restoration:
        """What had to be copied in order to be put back."""
        return self.modes.saved_state

    def ready(self) -> None:
        """Put back what earlier calls changed of the inputs; what is timed begins after this.

        A call does so itself where nobody did before. Raises InputError `inputs-used-up`.
        """
        inputs = self._inputs
        if inputs is None or not self.inputs_used:
            return
        if inputs.changes is None:
            inputs.look()
            if not inputs.changes:
                self._inputs = None
                return
        inputs.put_back()
        self.inputs_used = False

    def __call__(self, mark: Callable[[Phase], None] | None = None) -> Any:
        """Run the step and return the outputs of its forward pass."""
        if self._undecided:
            return self._decided(mark)
        if self._inputs is not None:
            self.ready()
            self.inputs_used = True
        try:
            return self._finishing(self._call()) if mark is None else self._marked(mark)
        except PASSING:
            raise
        except BaseException as error:  # the user's code may raise anything
            if self._owner.lets_pass(error):
                raise
            raise translated(error, self.device, self.subject, self._misfit) from error

    def on(self, inputs: Inputs) -> Any:
        """Run the model on inputs of their own, and return its outputs."""
        self._take(inputs)
        return self()

    def _take(self, inputs: Inputs) -> None:
        self._call_inputs = inputs
        self._call = functools.partial(self._placement.model, *inputs.args, **inputs.kwargs)

    def _decided(self, mark: Callable[[Phase], None] | None) -> Any:
        """Run the first call, in the grad mode that the forward needs."""
        self._undecided = False
        began = time.perf_counter()

        def attempt(grad_mode: GradMode) -> Any:
            if grad_mode != self.modes.grad_mode:
                self.modes.change(grad_mode)
                self._inputs = InputState(self._placement.inputs, self.saved_state)
                self.inputs_used = False
                if any(tensor.is_inference() for _, tensor in self._call_inputs.tensors()):
                    self._take(self._call_inputs.map(torch.clone))  # no other mode derives by them
                self.lost = time.perf_counter() - began
            return self(mark)

        return decide(self._placement.grad_modes, attempt)

    def _marked(self, mark: Callable[[Phase], None]) -> Any:
        if self.optimizer is not None:
            return self._call(mark)
        mark("forward")
        outputs = self._finishing(self._call())
        mark("end")
        return outputs


_steps: weakref.WeakSet[Step] = weakref.WeakSet()


def _end_in_child() -> None:
    """Let a process that a step forked run no other: each would fork once more."""
    for step in list(_steps):
        step._call = _ended  # noqa: SLF001 - the same file


def _ended(*_: object) -> NoReturn:
    raise SystemExit(0)


after_fork_in_child(_end_in_child)


def without_values() -> MeasurementError:
    """Return the error that a model computes nothing."""
    return MeasurementError(
        "A model on the meta device, or of fake tensors, cannot be run.",
        id="meta-model",
        cause="Its tensors have shapes and no values.",
        remedy="Load it on cpu or cuda; tg.measure_size and tg.count_cost take it as it is.",
    )


@contextlib.contextmanager
def prepared(placement: Placement, train: Training | None = None) -> Iterator[Step]:
    """Yield the step in the right modes and precision; put all back afterwards.

    Inference runs in evaluation mode under torch.inference_mode, or the grad mode that the forward
    needs; training on parameters that are restored, its autocast entered by the step itself. Raises
    MeasurementError `meta-model` where nothing would be computed, and what making a TrainingStep
    raises.
    """
    if not placement.computes:
        raise without_values()
    owner = Owner()
    with _entered(placement, train) as modes:
        step = Step(placement, train, modes)
        yield step
        step.ready()
    owner.end_fork()


@restoring
def _entered(placement: Placement, train: Training | None) -> Iterator[Modes]:
    with contextlib.ExitStack() as undo:
        yield Modes(placement, train, undo)


def _autocasts(placement: Placement, train: Training | None) -> bool:
    return train is not None and placement.method == "autocast"


def guarded(
    call: Callable[..., Any], device: str, subject: str = "The model's forward"
) -> Callable[..., Any]:
    """Return `call` with what it raises translated; a try costs a call that succeeds nothing."""
    owner = Owner()

    def step(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except PASSING:
            raise
        except BaseException as error:  # the user's code may raise anything
            if owner.lets_pass(error):
                raise
            raise translated(error, device, subject) from error

    return step
