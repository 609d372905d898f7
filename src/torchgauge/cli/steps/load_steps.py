"""What to run after a load: how many workers a rate needs, a search, the page."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.folders import display_path
from torchgauge.targets.runtimes.runtime_options import RUNTIMES

if TYPE_CHECKING:
    from torchgauge.records.serving.serving import Serving
    from torchgauge.report.content.document import Document

MAX_STEPS = 3
STEM = "load"
FLAGS = ("mlperf", "http2", "allow_remote", "trust")
VALUES = (
    *("arrivals", "scenario", "duration", "requests", "in_flight", "timeout", "seed", "api"),
    *("processes", "body", "prompts", "tokens", "model", "bearer_env"),
    *("max_batch", "max_delay", "workers"),
    *("weights", "device", "precision", "provider", "optimization"),
)
NAMES = {"duration": "for"}


def with_load_steps(document: Document, serving: Serving, options: argparse.Namespace) -> Document:
    """Return the document with commands to run next; of a record that failed, as it is."""
    from torchgauge.report.content.document import Heading, Listing

    if not serving.complete:
        return document
    lines = "\n".join(f"{command}  # {reason}" for command, reason in steps(serving, options))
    heading = Heading("Next", tone="")
    return dataclasses.replace(
        document, conclusion=[*document.conclusion, heading, Listing(lines, "sh")]
    )


def steps(serving: Serving, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return commands with what each is for, the most useful first."""
    load_words = ["torchgauge", "load", *load_arguments(serving, options)]
    saved = saved_record(options)
    commands = []
    if serving.client_limited:
        commands.append(("torchgauge doctor", "what keeps the client from its cores"))
    # A search needs arrivals that can come at any rate, by a schedule of each level's own.
    is_open = all(
        level.scenario == "server" and level.arrivals.kind != "file" for level in serving.levels
    )
    was_search = not isinstance(options.rate, tuple) and bool(options.goals)
    if is_open and not was_search:
        goal = [] if serving.goals else ["--goal", "p99<100ms"]
        words = ["--rate", "auto", *goal]
        commands.append((shlex.join([*load_words, *words]), "the highest rate within the goals"))
    else:
        load_words += ["--rate", "auto"] * (options.rate == "auto")
    rate, times = _planned_from(serving), serving.service_times
    if rate is not None and saved is not None and times is not None:
        words = ["torchgauge", "capacity", display_path(saved), "--rate", f"{2 * rate:.4g}"]
        # A plan by service times says nothing of errors or tokens.
        goals = " ".join(goal.text for goal in serving.goals if goal.metric == "latency")
        words += ["--goal", goals] * bool(goals)
        largest = max((part.batch for part in times.batches if part.seconds), default=0)
        if (times.max_batch or 1) > largest > 0:  # a plan takes batches that were measured
            words += ["--max-batch", str(largest)]
        commands.append((shlex.join(words), "how many workers twice the rate needs"))
    page = (f"{shlex.join(load_words)} --open", "the same as a page")
    if saved is not None:
        report_command = shlex.join(["torchgauge", "report", display_path(saved), "--open"])
        page = (report_command, "the same as a page")
    return [*commands[: MAX_STEPS - 1], page]


def _planned_from(serving: Serving) -> float | None:
    """Return the capacity, or without goals the highest rate; None where a search shows none."""
    if serving.capacity is not None and (serving.capacity.rate or serving.capacity.searched):
        return serving.capacity.rate
    return max(filter(None, (level.arrivals.rate for level in serving.levels)), default=None)


def load_arguments(serving: Serving, options: argparse.Namespace) -> list[str]:
    """Return the arguments that name what is under load and how, as they were given, less rates.

    An address has no password or query: what a URL holds may be a secret.
    """
    address = serving.served_by.address if serving.served_by.kind == "endpoint" else ""
    arguments = [address or options.target]
    for name in VALUES:
        value = getattr(options, name)
        if value is not None:
            text = ":".join(map(str, value)) if isinstance(value, tuple) else _text(value)
            arguments += [f"--{NAMES.get(name, name).replace('_', '-')}", text]
    if options.runtime != RUNTIMES[0]:
        arguments += ["--runtime", options.runtime]
    for file in options.custom_ops:
        arguments += ["--custom-ops", str(file)]
    for text in options.inputs:
        arguments += ["--input", text]
    for text in options.goals or ():
        arguments += ["--goal", text]
    return arguments + [f"--{name.replace('_', '-')}" for name in FLAGS if getattr(options, name)]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def saved_record(options: argparse.Namespace) -> Path | None:
    """Return the file that the record was written to; None where it was not."""
    saved: Path | None = next((path for form, path in options.outputs if form == "json"), None)
    if saved is None and options.output_dir is not None and "json" in (options.formats or ["json"]):
        saved = options.output_dir / f"{STEM}.json"
    return saved
