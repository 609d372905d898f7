"""Record the user's own loop from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import require_torch

if TYPE_CHECKING:
    from torch import nn

    from torchgauge.measure.loop.loop import Timeline
    from torchgauge.measure.loop.schedule import Schedule


def timeline(
    model: nn.Module | Iterable[nn.Module] | None = None,
    *,
    schedule: Schedule | None = None,
    memory_budget: int | None = None,
    all_threads: bool = False,
    on_oom: str | Path | None = None,
) -> Timeline:
    """Return a context manager that records some steps of your own loop: `with … as run:`.

    `model` is a module, several, or None for those that the loop calls. A step ends with the
    optimizer's step, in inference with a call of the model, or where the loop calls `run.step()`.
    `schedule` selects the recorded steps; fewer are recorded if all would take more memory than
    `memory_budget` bytes (1 GiB, a quarter of the free memory if that is less). `tg.mark(name)`
    names parts of the loop. After the block use `run.tree`, `run.steps`, `run.captured` and
    `run.record`. The stepping thread is recorded, with autograd's. `all_threads` records the others
    too: torch may end the process if one of them runs operators while a recording begins or ends.
    Other threads cannot measure until the block ends. `on_oom` is a folder: where memory runs out,
    `oom.json` there says what was alive, and on a GPU the allocator's snapshot is written too.

    Raises InputError `not-a-module`, `budget-invalid`; on entering `timeline-active`, and
    MeasurementError `profiler-active`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> with tg.timeline(model) as run:
        ...     for _ in range(12):
        ...         y = model(x)
        >>> run.record.count, run.captured.recorded
        (12, 5)
    """
    require_torch()
    from torchgauge.measure.loop.loop import Timeline

    return Timeline(
        model,
        schedule=schedule,
        memory_budget=memory_budget,
        all_threads=all_threads,
        on_oom=on_oom,
    )


def nvtx(model: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that marks the model's layers by NVTX ranges, for Nsight Systems.

    Put your own loop into the block. Raises MeasurementError `nvtx-unavailable`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> with tg.nvtx(model):  # doctest: +SKIP
        ...     y = model(x)  # below `nsys profile`, where there is a GPU
    """
    require_torch()
    from torchgauge.measure.timeline.ranges import nvtx as marked

    return marked(model)
