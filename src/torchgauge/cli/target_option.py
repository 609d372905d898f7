"""TARGET, `--model-path` and `--threshold`, read together: the last threshold may be the target."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.errors import InputError
from torchgauge.files import is_file, is_folder

if TYPE_CHECKING:
    from torchgauge.records.verdict import Limit


def add_target(parser: argparse.ArgumentParser) -> None:
    """Declare TARGET and its alias."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="what to measure")
    parser.add_argument("--model-path", metavar="TARGET", help="the same, as an option")


def add_threshold(group: argparse._ArgumentGroup) -> None:
    """Declare the limits."""
    group.add_argument(
        "--threshold",
        nargs="+",
        action="extend",
        default=[],
        metavar="LIMIT",
        help="limits such as latency:100ms p99:20ms memory:2GB params:25M flops:4G "
        "throughput:1000samples/s; exit code 3 where one is broken, 4 where one cannot be told",
    )


def settle(options: argparse.Namespace) -> tuple[Limit, ...]:
    """Set `options.target` to the one target that was given, and return the limits.

    `--threshold` takes all values that follow it. So where no target was given and the last value
    names no metric, it is the target.

    Raises InputError `target-missing`, `option-conflict`, `metric-unknown`, `threshold-invalid`.
    """
    from torchgauge.analyze.gate.limits import parse_limit
    from torchgauge.records.metric import METRICS, metric

    targets = [name for name in (options.target, options.model_path) if name is not None]
    if len(targets) > 1:
        raise InputError(
            f"There are two targets: {targets[0]} and {targets[1]}.",
            id="option-conflict",
            cause="--model-path is another name for TARGET.",
            remedy="Give one of them.",
        )
    texts = list(options.threshold)
    if not targets and texts and _prefix(texts[-1]) not in METRICS:
        if _looks_like_a_limit(texts[-1]):
            metric(_prefix(texts[-1]))
        targets = [texts.pop()]
    if not targets:
        raise InputError(
            "There is no target.",
            id="target-missing",
            cause="Neither TARGET nor --model-path was given.",
            remedy="Name what to measure: file.py:factory, torchvision:resnet18, a folder.",
        )
    options.target = targets[0]
    return tuple(parse_limit(text) for text in texts)


def _prefix(text: str) -> str:
    return text.partition(":")[0].strip()


def _looks_like_a_limit(text: str) -> bool:
    """Tell a misspelt metric from a target: no factory's or model's name begins with a digit."""
    is_path = is_file(Path(text)) or is_folder(Path(text))
    return re.match(r"[^/:]*:\s*[\d.]", text) is not None and not is_path
