"""Count one rank of a job on many devices, on a machine without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torchgauge.api.preparation import measuring, require_torch
from torchgauge.records.parallel.parallel import Parallel

if TYPE_CHECKING:
    from torchgauge.measure.parallel.parallel_options import ParallelOptions
    from torchgauge.targets.target import TargetRequest
    from torchgauge.targets.training.training import Training


def count_parallel(
    model_or_function: Callable[..., Any],
    inputs: Any = None,
    *,
    mesh: str | Mapping[str, int],
    train: Training | None = None,
    optimizer: str | None = None,
    precision: Literal["fp32", "bf16"] | None = None,
    checkpoint: Literal["full", "op", "none"] | None = None,
    on: Sequence[str] = (),
    smallest: bool = False,
    savings: bool = False,
    progress: bool | None = None,
) -> Parallel:
    """Count what one rank of a job holds, computes and sends in a training step; nothing is run.

    A function with a parameter `mesh` gets a `DeviceMesh` on "cpu" and fake tensors; it builds the
    model, shards it, and returns `(model, inputs)` or `(model, inputs, tg.Training(…))` of one
    rank. A plain model is sharded by the names of the dimensions: "fsdp" (`fully_shard` of each
    repeated layer and the whole), "tp" (its own plan), "ddp".

    Args:
        model_or_function: The model, or the function that shards.
        inputs: Of one rank, as `profile` takes them.
        mesh: Names and sizes, outermost first: {"fsdp": 128, "tp": 8} or "fsdp=128,tp=8".
        train: The loss and the optimizer; None takes the model's own loss, else the mean of its
            outputs, and AdamW.
        optimizer: A class of torch.optim by name ("adamw", "adam", "sgd"), or "sgd-momentum".
        precision: "bf16" gathers and computes in bfloat16 and reduces in float32 under fsdp, else
            it casts the model; None leaves it as it is.
        checkpoint: "full" computes each repeated layer again in the backward pass, "op" all but
            its dearest operators.
        on: Devices such as "h100", for which memory and the least time are judged.
        smallest: Look for the smallest mesh that fits the first of them.
        savings: Count again with one setting changed at a time: what would save memory.
        progress: Show what is being counted; None: on a terminal and in a notebook.

    Raises InputError for a mesh, a model or a function that cannot be, ModelError where the model
    raises.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        >>> job = tg.count_parallel(model, torch.ones(4, 8), mesh={"fsdp": 4})
        >>> job.kinds[0].parameters, job.parameters
        (36, 144)
    """
    require_torch()
    from torchgauge.device.roofs import peaks
    from torchgauge.measure.parallel.parallel_options import ParallelOptions, mesh_of
    from torchgauge.measure.parallel.rank_count import count_object

    options = ParallelOptions(
        mesh=mesh_of(mesh),
        optimizer=optimizer,
        precision=precision,
        checkpoint=checkpoint,
        on=tuple(peaks.find(name) for name in on),
        smallest=smallest,
        savings=savings,
    )
    with measuring(progress) as display:
        return count_object(model_or_function, inputs, options, train, display)


def count_parallel_request(request: TargetRequest, options: ParallelOptions) -> Parallel:
    """Count a job whose model, or function that shards, is named as on the command line.

    Raises InputError `loss-unknown`, and what loading and sharding raise.
    """
    require_torch()
    from torchgauge.measure.parallel.rank_count import count_requested

    with measuring(None) as display:
        return count_requested(request, options, display)
