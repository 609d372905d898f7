"""The training step of one stage of a pipeline, by a schedule of torch.distributed.pipelining."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import nn

from torchgauge.errors import InputError
from torchgauge.measure.parallel.fake_job import replace
from torchgauge.measure.parallel.rank_step import optimizer_on_device
from torchgauge.measure.work.internals import storage_key
from torchgauge.records.parallel.rank_memory import StepPhase
from torchgauge.signals import restoring
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training

TARGET = "target"


class PipelineStep:
    """One step of a stage: micro-batches forward and backward as the schedule orders, optimizer.

    The first stage gets the positional inputs, the last one `target` of the named ones. `returned`
    are the storages of gradients that are about to be sent or received.
    """

    interleaved = True

    def __init__(self, schedule: Any, inputs: Inputs, training: Training) -> None:
        self.schedule, self.inputs = schedule, inputs
        self._stages = stages_of(schedule)
        self.model = stage_modules(schedule)
        self.optimizer = optimizer_on_device(self.model, training)
        self.returned: set[int] = set()

    def __call__(self, begin: Callable[[StepPhase], None] = lambda _: None) -> None:
        """Run the step; `begin` is called with the name of each phase."""
        self.returned.clear()
        begin("forward")
        args = self.inputs.args if any(stage.is_first for stage in self._stages) else ()
        kwargs = {name: value for name, value in self.inputs.kwargs.items() if name != TARGET}
        if TARGET in self.inputs.kwargs and any(stage.is_last for stage in self._stages):
            kwargs[TARGET] = self.inputs.kwargs[TARGET]
        with _agreed(self.returned):
            self.schedule.step(*args, **kwargs, return_outputs=False)
        begin("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad()


def is_schedule(value: Any) -> bool:
    """Whether a value is a schedule of torch.distributed.pipelining."""
    return hasattr(value, "step") and (hasattr(value, "_stage") or hasattr(value, "_stages"))


def stages_of(schedule: Any) -> list[Any]:
    """Return the stages of a schedule that this rank runs."""
    single = getattr(schedule, "_stage", None)
    return list(schedule._stages) if single is None else [single]  # noqa: SLF001 - not public


def stage_modules(schedule: Any) -> nn.Module:
    """Return the modules of the stages that this rank runs, as one."""
    modules = [stage.submod for stage in stages_of(schedule)]
    return modules[0] if len(modules) == 1 else nn.ModuleList(modules)


@restoring
def _agreed(returned: set[int]) -> Iterator[None]:
    """Have each stage take the shapes that it was given, which it else asks of its neighbours.

    Storages of the gradients that it exchanges with them are added to `returned`.

    Raises InputError `pipeline-shapes-missing` in a stage that was given none.
    """
    from torch.distributed.pipelining import stage

    pipelining: Any = stage  # neither the vote nor its modes are public

    def vote(voter: Any, *_: Any, **__: Any) -> SimpleNamespace:
        if pipelining.InferenceMode.needs_dynamic(voter._user_meta, True):  # noqa: SLF001
            raise InputError(
                f"Stage {voter.stage_index} of the pipeline does not know its shapes.",
                id="pipeline-shapes-missing",
                cause="It would ask the stages before it, which are not run.",
                remedy="Give PipelineStage its input_args and output_args.",
            )
        return SimpleNamespace(item=lambda: 1)

    def noting(original: Any) -> Any:
        def operations(*args: Any, **kwargs: Any) -> Any:
            exchanges = original(*args, **kwargs)
            returned.update(storage_key(operation.tensor) for operation in exchanges)
            return exchanges

        return operations

    stage_type = pipelining.PipelineStage
    with contextlib.ExitStack() as undo:
        for name in ("_warmup_forward_vote", "_warmup_backward_result"):
            if hasattr(stage_type, name):
                replace(undo, stage_type, name, vote)
        for name in ("get_bwd_send_ops", "get_bwd_recv_ops"):
            replace(undo, stage_type, name, noting(getattr(stage_type, name)))
        yield
