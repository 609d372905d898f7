"""Hold a plan of capacity to a load on its target, or on one that is named."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from msgspec.structs import replace

from torchgauge.errors import TorchgaugeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from torchgauge.analyze.capacity.verification import VerifyingLoad
    from torchgauge.records.serving.capacity_plan import CapacityPlan
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.target import TargetDescription

# A load takes as long as some requests do, within limits.
VERIFY_SECONDS, MOST_SECONDS, VERIFY_REQUESTS = 10.0, 60.0, 300


def verified_by_load(
    plan: CapacityPlan,
    target: Callable[..., Any] | str = "",
    inputs: Any = None,
    load: Mapping[str, Any] | None = None,
    *,
    token_budget: int = 2048,
    progress: bool | None = None,
) -> CapacityPlan:
    """Put a target under the planned load, and return the plan with its predictions beside that.

    Without one it is the target of the record. A refused plan stays as it is, and no plan is lost:
    an error of the load is a warning, and Ctrl-C makes it `interrupted`. `load` are settings of
    `measure_serving` or, where the target is named, of a `TargetRequest`.
    """
    from torchgauge.analyze.capacity.verification import UNFIT, verified, with_doubt
    from torchgauge.records.record import MeasurementWarning

    if plan.refused:
        return plan
    try:
        verifying, serving = _loaded(plan, target, inputs, dict(load or {}), progress)
        different = "" if target else _differences(plan, serving)
        if different:
            message = f"The load of --verify ran another target: {different}."
            remedy = (
                "Say how it is run (--input, --weights, --precision, --device), or name a target."
            )
            plan = replace(plan, interrupted=serving.interrupted)
            return with_doubt(plan, UNFIT, message, remedy)
        return verified(plan, verifying, serving, token_budget)
    except KeyboardInterrupt:
        return replace(plan, interrupted=True)
    except TorchgaugeError as error:
        failed = MeasurementWarning.from_error(error, "serving", "The plan was not verified: ")
        return replace(plan, warnings=(*plan.warnings, failed))


def _loaded(
    plan: CapacityPlan,
    target: Callable[..., Any] | str,
    inputs: Any,
    settings: dict[str, Any],
    progress: bool | None,
) -> tuple[VerifyingLoad, Serving]:
    """Return the load that verifies a plan, and what came of it. Raises as `measure_serving`."""
    from torchgauge.analyze.capacity.verification import verifying_load
    from torchgauge.api.servings import measure_serving, serving_request
    from torchgauge.device.cpu import usable_cores
    from torchgauge.targets.target import TargetRequest

    subject = target or plan.target.spec
    is_endpoint = isinstance(subject, str) and "://" in subject
    # Behind the record's own address there are as many workers as were measured.
    workers = plan.times.workers if is_endpoint and not target else None
    verifying = verifying_load(plan, None if is_endpoint else usable_cores(), workers)
    arrivals = plan.arrivals.kind
    if arrivals == "gamma":
        arrivals = f"gamma:{plan.arrivals.variation:g}"  # type: ignore[assignment]
    planned: dict[str, Any] = {
        "rate": verifying.rate,
        "goals": plan.goals,
        # A recorded schedule is not in the plan: `load` may name its file.
        "arrivals": "poisson" if arrivals == "file" else arrivals,
        "workers": verifying.workers,
        "seed": plan.arrivals.seed + 1,
        "duration": min(MOST_SECONDS, max(VERIFY_SECONDS, VERIFY_REQUESTS / verifying.rate)),
    }
    if not is_endpoint:
        planned |= {
            "max_batch": verifying.setting.max_batch, "max_delay": verifying.setting.max_delay
        }  # fmt: skip
    if is_endpoint or not isinstance(subject, str):
        streamed = _streamed(plan, subject, settings)
        settings = planned | streamed | settings
        return verifying, measure_serving(subject, inputs, progress=progress, **settings)
    names = {field.name for field in dataclasses.fields(TargetRequest)} & set(settings)
    fields = {name: settings.pop(name) for name in names}
    fields = ({"device": "auto"} if target else _described(plan)) | fields
    request = TargetRequest(subject, **fields)
    return verifying, serving_request(request, progress=progress, **(planned | settings))


def _described(plan: CapacityPlan) -> dict[str, Any]:
    """Return how the plan's target was run, as far as its record says.

    Raises InputError `verify-unfit` for what a load does not run.
    """
    from torchgauge.analyze.capacity.verification import unfit

    target, of_sweep = plan.target, plan.times.source == "sweep"
    remedy = "Name a target that is run so: --verify TARGET"
    if target.training:
        raise unfit("They are service times of training steps.", remedy)
    of_target = {"", target.precision, target.device, target.device.partition(":")[0]}
    settings = [part for part in plan.times.settings.split(", ") if part not in of_target]
    if of_sweep and settings:
        cause = f"Its service times have {', '.join(settings)}, which a load does not run."
        raise unfit(cause, remedy)
    fields: dict[str, Any] = {"device": target.device}
    if target.precision_method != "native":
        fields["precision"] = target.precision
    return fields | ({"batch": 1} if of_sweep and target.batch is not None else {})


def _differences(plan: CapacityPlan, serving: Serving) -> str:
    """Return how the target that was loaded differs from the plan's; empty where alike."""
    begin = 1 if plan.times.source == "sweep" else 0  # its cells have batches

    def facts(target: TargetDescription) -> dict[str, str]:
        shapes = (f"{i.name} {i.dtype} {i.shape[begin:]}" for i in target.inputs)
        names = ("device", "precision", "precision_method", "weights", "runtime")
        return {name: getattr(target, name) for name in names} | {"inputs": ", ".join(shapes)}

    planned, loaded = facts(plan.target), facts(serving.target)
    return "; ".join(
        f"{name} {loaded[name] or 'none'} in place of {planned[name] or 'none'}"
        for name in planned
        if planned[name] != loaded[name]
    )


def _streamed(plan: CapacityPlan, url: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a language model's server gets requests of the planned tokens."""
    if plan.discipline != "continuous" or not isinstance(url, str):
        return {}
    is_chat = url.partition("?")[0].rstrip("/").endswith("/chat/completions")
    api = {"api": "openai-chat" if is_chat else "openai-completions"}
    has_own = "body" in settings or "prompts" in settings
    return api if has_own else api | {"tokens": plan.times.shapes[0]}
