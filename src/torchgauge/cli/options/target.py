"""TARGET, how it is run and trained, and the limits: the last threshold may be the target."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.cli.options.numbers import positive
from torchgauge.cli.parser import UsageError
from torchgauge.errors import option_conflict
from torchgauge.files import is_file, is_folder
from torchgauge.folders import typed
from torchgauge.targets.runtimes.runtime_options import (
    LEVELS,
    RUNTIMES,
    RuntimeOptions,
    check_in_runtime,
)

if TYPE_CHECKING:
    from torchgauge.records.verdict import Limit
    from torchgauge.targets.target import TargetRequest


def add_target(parser: argparse.ArgumentParser, purpose: str = "what to measure") -> None:
    """Declare TARGET and its alias."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help=purpose)
    parser.add_argument("--model-path", metavar="TARGET", help="the same, as an option")


THRESHOLDS = "latency:100ms p99:20ms memory:2GB params:25M flops:4G throughput:1000samples/s"


def add_threshold(group: argparse._ArgumentGroup, examples: str = THRESHOLDS) -> None:
    """Declare the limits, with examples of those that the command's records have."""
    group.add_argument(
        "--threshold",
        nargs="+",
        action="extend",
        default=[],
        metavar="LIMIT",
        help=f"limits such as {examples}; exit code 3 if one is exceeded, "
        "4 if one cannot be decided",
    )


# Of every command that opens a model.
OF_MODELS: dict[str, dict[str, Any]] = {
    "--input": {"action": "append", "default": [], "metavar": "SPEC", "dest": "inputs"},
    "--weights": {"type": typed, "metavar": "FILE", "help": "state dict to load"},
    "--device": {
        "metavar": "DEVICE",
        "help": "cpu, cuda, cuda:N, or auto: the GPU if there is one (default)",
    },
    "--precision": {"metavar": "P", "help": "fp32, tf32, bf16 or fp16 (default: as the model is)"},
    "--trust": {
        "action": "store_true",
        "help": "load a file that holds a program, in a process of its own",
    },
}


def add_model_option(group: argparse._ArgumentGroup, flag: str, **changes: Any) -> None:
    """Declare an option of `OF_MODELS`, with what differs here."""
    group.add_argument(flag, **(OF_MODELS[flag] | changes))


def add_run_options(
    group: argparse._ArgumentGroup,
    *,
    device: str | None = "auto",
    device_help: str = "cpu, cuda, cuda:N or auto: the GPU if there is one (default)",
) -> None:
    """Declare the options that say what is run and where."""
    add_model_option(
        group,
        "--input",
        help="shape of an input, such as 1x3x224x224 or input_ids=2x128:int64<50257; repeatable",
    )
    group.add_argument(
        "--batch", type=positive, metavar="N", help="leading dimension of every input"
    )
    add_model_option(group, "--weights")
    add_model_option(group, "--device", default=device, help=device_help)
    add_model_option(group, "--precision")
    add_model_option(group, "--trust")
    group.add_argument(
        "--etrecord", type=typed, metavar="FILE",
        help="ETRecord of an ExecuTorch program: its layers and parameters",
    )  # fmt: skip


def add_runtime_options(group: argparse._ArgumentGroup, *, axes: bool = True) -> None:
    """Declare how an ONNX file is run; without `axes` those of a sweep have names of their own."""
    if axes:
        group.add_argument(
            "--runtime", choices=RUNTIMES, default=RUNTIMES[0],
            help="what runs an ONNX file (default: onnxruntime)",
        )  # fmt: skip
        group.add_argument(
            "--optimization", choices=LEVELS,
            help="how far ONNX Runtime optimises the graph (default: all)",
        )  # fmt: skip
    group.add_argument(
        "--provider",
        metavar="P",
        help="what of the runtime computes: cpu (default), cuda, tensorrt; gpu of OpenVINO",
    )
    group.add_argument(
        "--custom-ops",
        type=typed,
        action="append",
        default=[],
        metavar="FILE",
        help="library of custom operators for ONNX Runtime; needs --trust",
    )


def add_training_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options of a training step."""
    group.add_argument(
        "--train", action="store_true", help="measure a training step in place of inference"
    )
    group.add_argument(
        "--loss",
        metavar="L",
        help="file.py:function or module:function of (outputs, inputs), or 'mean' of the outputs "
        "(default: the loss that the model returns)",
    )
    group.add_argument(
        "--optimizer", metavar="NAME", help="a class of torch.optim, such as adamw (the default)"
    )


def settle(options: argparse.Namespace) -> tuple[Limit, ...]:
    """Set `options.target` to the one target that was given, and return the limits if it has any.

    `--threshold` takes all values that follow it. So where no target was given and the last value
    names no metric, it is the target.

    Raises InputError `target-missing`, `option-conflict`, `metric-unknown`, `threshold-invalid`.
    """
    from torchgauge.analyze.gate.limits import limit_parts, parse_limit
    from torchgauge.records.metric import METRICS, metric

    targets = [name for name in (options.target, options.model_path) if name is not None]
    if len(targets) > 1:
        raise option_conflict(
            f"There are two targets: {targets[0]} and {targets[1]}.",
            "Give one of them.",
            cause="--model-path is another name for TARGET.",
        )
    texts = list(getattr(options, "threshold", ()))
    if not targets and texts and (name := limit_parts(texts[-1])[0]).lower() not in METRICS:
        if _looks_like_a_limit(texts[-1]):
            metric(name)
        targets = [texts.pop()]
    if not targets:
        raise UsageError(
            "TARGET is missing: file.py:factory, torchvision:resnet18, a folder.",
            options.parser,
            id="target-missing",
        )
    options.target = targets[0]
    return tuple(parse_limit(text) for text in texts)


def check_training(options: argparse.Namespace) -> None:
    """Raise InputError `option-conflict` for options of a training step where there is none."""
    if (options.loss or options.optimizer) and not options.train:
        raise option_conflict("--loss and --optimizer belong to a training step.", "Add --train.")


def run_request(options: argparse.Namespace) -> TargetRequest:
    """Return what is to be run, and how. Raises InputError as `check_training`."""
    check_training(options)
    return target_request(
        options,
        batch=options.batch,
        precision=options.precision,
        training=options.train,
        loss=options.loss,
        optimizer=options.optimizer,
    )


def target_request(options: argparse.Namespace, **fields: Any) -> TargetRequest:
    """Return the target that every verb names alike, with other `fields` of its request.

    Raises InputError `runtime-unsupported` for options of ONNX files where no target is one.
    """
    from torchgauge.targets.target import TargetRequest

    named = {
        "spec": options.target,
        "inputs": tuple(options.inputs),
        "weights": options.weights,
        "device": options.device,
        "trust": options.trust,
        "etrecord": getattr(options, "etrecord", None),
    }
    if "provider" in options and "runtime" not in fields:
        fields["runtime"] = runtime_options(options)
    if "runtime" in fields:
        baselines = (getattr(options, name, None) for name in ("baseline", "base_target"))
        check_in_runtime(fields["runtime"], options.target, *filter(None, baselines))
    return TargetRequest(**named | fields)


def runtime_options(options: argparse.Namespace) -> RuntimeOptions:
    """Return how an ONNX file is run, as was given."""
    return RuntimeOptions(
        options.runtime, options.provider, options.optimization, tuple(options.custom_ops)
    )


def _looks_like_a_limit(text: str) -> bool:
    """Tell a misspelt metric from a target: no factory's or model's name begins with a digit."""
    is_path = is_file(Path(text)) or is_folder(Path(text))
    return re.match(r"[^/:=<>]*(:|=|<=?|>=?)\s*[\d.]", text) is not None and not is_path
