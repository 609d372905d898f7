"""Runs odd models through public functions, one line of JSON for each; see test_odd_models."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import observer
from odd_models import MODELS

import torchgauge as tg
from torchgauge.errors import TorchgaugeError

QUIET = {"progress": False}
TRAIN = tg.Training(
    lambda out, _: torch.stack([t.float().mean() for t in _tensors(out)]).sum(),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1),
)


def _tensors(out: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


def _profile(model: Any, inputs: Any) -> None:
    found = tg.profile(
        model, inputs, iterations=2, warmup=1, processes=1, roofs=False, detail="layers", **QUIET
    )
    crashes = [one for one in found.warnings if one.id == "probe-crashed"]
    if crashes:
        raise RuntimeError(crashes[0].traceback)
    _shown(found)


def _shown(found: Any) -> None:
    str(found), repr(found), found.to_markdown(), found.to_html(), found.to_openmetrics()
    found.to_speedscope(), found.to_csv()


def _timeline(model: Any, inputs: Any) -> None:
    with tg.timeline(schedule=tg.Schedule(0, 1, 1, 1), **QUIET) as recording:
        for _ in range(3):
            with contextlib.suppress(Exception, SystemExit):
                model(inputs)
            recording.step()
    str(recording.record)


def _model_profiler(model: Any, inputs: Any) -> None:
    str(tg.ModelProfiler(model).profile(inputs, num_runs=2, warmup_runs=1))


def _shown(record: Any) -> Any:
    """Return a record that can be printed."""
    str(record)
    return record


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "measure_size": lambda model, _: tg.measure_size(model),
    "count_cost": lambda model, x: _shown(tg.count_cost(model, x)),
    "count_cost backward": lambda model, x: tg.count_cost(model, x, backward=True),
    "measure_latency": lambda model, x: _shown(
        tg.measure_latency(model, x, iterations=2, warmup=1, **QUIET)
    ),
    "measure_latency train": lambda model, x: tg.measure_latency(
        model, x, train=TRAIN, iterations=2, warmup=1, **QUIET
    ),
    "measure_memory": lambda model, x: _shown(tg.measure_memory(model, x)),
    "measure_memory train": lambda model, x: tg.measure_memory(model, x, train=TRAIN),
    "profile": _profile,
    "profile bf16": lambda model, x: tg.profile(
        model,
        x,
        iterations=2,
        warmup=1,
        processes=1,
        roofs=False,
        detail="summary",
        precision="bf16",
        **QUIET,
    ),
    "profile lines": lambda model, x: tg.profile(
        model, x, iterations=2, warmup=1, processes=1, roofs=False, lines=True, **QUIET
    ),
    "nvtx": lambda model, x: tg.nvtx(model).__enter__(),
    "quick_profile": lambda model, x: tg.quick_profile(model, (2, 4)),
    "ModelProfiler": _model_profiler,
    "compare": lambda model, x: tg.compare(model, model),
    "sweep": lambda model, x: tg.sweep(model, x, {"batch": [2]}, iterations=2, warmup=0, **QUIET),
}


def main(models: list[str], functions: list[str]) -> None:
    """Print for each pair how it ended, what changed, and the seconds."""
    warnings.simplefilter("ignore")
    for name in models:
        for function in functions:
            print(json.dumps({"start": [name, function]}), file=sys.__stdout__, flush=True)
            print(json.dumps(_one(name, function)), file=sys.__stdout__, flush=True)


def _one(name: str, function: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    for attribute in ("odd", "x"):
        observer.logging.getLogger(attribute)
    before = observer.model(model), observer.process()
    start, ended, trace = time.monotonic(), "done", ""
    said: set[str] = set()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = FUNCTIONS[function](model, inputs)
        said = {one.id for one in getattr(found, "warnings", ())}
    except TorchgaugeError as error:
        ended = error.id
        str(error)
    except BaseException as error:  # noqa: BLE001 - it is what is counted
        ended, trace = f"RAW {type(error).__name__}", "".join(traceback.format_exception(error))
    after = observer.model(model), observer.process()
    changed = [one for b, a in zip(before, after, strict=True) for one in observer.changed(b, a)]
    _tidy(after[1], before[1])
    return {
        "model": name, "function": function, "ended": ended, "changed": changed,
        "said": sorted(said), "seconds": round(time.monotonic() - start, 3), "trace": trace,
    }  # fmt: skip


def _tidy(after: dict[str, Any], before: dict[str, Any]) -> None:
    """Put the process back where a function failed to, so that the next pair is judged alone."""
    if after["folder"] != before["folder"]:
        observer.os.chdir(before["folder"])
    torch.set_default_dtype(before["defaults"][0])
    torch.set_grad_enabled(before["modes"][0])
    torch.set_num_threads(before["threads of torch"])
    observer.warnings.filters[:] = before["filters"]


if __name__ == "__main__":
    chosen = sys.argv[1].split(",") if sys.argv[1] != "all" else list(MODELS)
    main(chosen, sys.argv[2].split(";") if sys.argv[2] != "all" else list(FUNCTIONS))
