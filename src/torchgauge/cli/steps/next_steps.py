"""What to run after a profile or a generation: complete commands about the same target."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from torchgauge.folders import display_path

if TYPE_CHECKING:
    from pathlib import Path

    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.profile import Profile
    from torchgauge.report.content.document import Document

MAX_STEPS = 3
# Options that say what the target is, and how it is run.
OF_TARGETS = (
    *("inputs", "batch", "weights", "precision", "loss", "optimizer", "device", "provider"),
    *("optimization", "etrecord", "runtime", "custom_ops", "train", "trust"),
)
OF_SHAPES = ("prompt", "batch")
OF_GENERATIONS = (
    *("inputs", "new", "cache", "beams", "assistant", "weights", "precision", "predict", "device"),
    *OF_SHAPES,
)
# Warnings of a machine that other work, or its settings, disturb.
DISTURBED = ("other-load", "steal-time", "several-modes", "drift", "throttled", "one-thread")


def with_next_steps(
    document: Document, record: Generation | Profile, options: argparse.Namespace
) -> Document:
    """Return the document with commands to run next; of a record that failed, as it is."""
    from torchgauge.records.profile import Profile

    if not record.complete or record.interrupted:
        return document
    commands = (
        steps(record, options) if isinstance(record, Profile) else generation_steps(record, options)
    )
    return with_commands(document, commands)


def with_commands(document: Document, commands: Sequence[tuple[str, str]]) -> Document:
    """Return the document with commands at its end, each with its reason."""
    from torchgauge.report.content.document import Heading, Listing

    lines = "\n".join(f"{command}  # {reason}" for command, reason in commands)
    heading = Heading("Next", tone="")
    return dataclasses.replace(
        document, conclusion=[*document.conclusion, heading, Listing(lines, "sh")]
    )


def steps(profile: Profile, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return commands with what each is for, the most useful first."""
    target = shlex.join(["torchgauge", "profile", *typed_words(options, OF_TARGETS)])
    commands = []
    if options.effort == "quick":
        commands.append((target, "with narrower intervals"))
    if any(warning.id in DISTURBED for warning in profile.all_warnings):
        commands.append(("torchgauge doctor", "what disturbs timings on this machine"))
    if profile.latency is not None:
        advise = shlex.join(["torchgauge", "advise", *typed_words(options, OF_TARGETS)])
        commands.append((advise, "try what may make it faster"))
    return [*commands[: MAX_STEPS - 1], page_step(target, options, "profile")]


def generation_steps(generation: Generation, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return commands with what each is for: more calls, more shapes, then the page."""
    arguments = ["torchgauge", "generate"]
    target = shlex.join([*arguments, *typed_words(options, OF_GENERATIONS)])
    commands = []
    if options.effort == "quick":
        commands.append((target, "with narrower intervals"))
    if any(warning.id in DISTURBED for warning in generation.all_warnings):
        commands.append(("torchgauge doctor", "what disturbs timings on this machine"))
    if generation.done and not generation.fits:
        largest = max(cell.batch for cell in generation.done)
        longest = max(cell.prompt for cell in generation.done)
        arguments += typed_words(options, set(OF_GENERATIONS) - set(OF_SHAPES))
        arguments += ["--prompt", f"{longest},{4 * longest}", "--batch", f"{largest},{4 * largest}"]
        commands.append((shlex.join(arguments), "how it grows, and what other shapes would take"))
    elif generation.done and not options.predict:
        commands.append((f"{target} --predict 8x4096", "what a shape would take"))
    return [*commands[: MAX_STEPS - 1], page_step(target, options, "generation")]


def saved_record(options: argparse.Namespace, stem: str) -> Path | None:
    """Return the file that the record was written to; None where it was not."""
    saved: Path | None = next((path for form, path in options.outputs if form == "json"), None)
    if saved is None and options.output_dir is not None and "json" in (options.formats or ["json"]):
        saved = options.output_dir / f"{stem}.json"
    return saved


def page_step(target: str, options: argparse.Namespace, stem: str) -> tuple[str, str]:
    """Return the command that shows the record as a page, without measuring again if it can."""
    saved = saved_record(options, stem)
    if saved is None:
        return f"{target} --open", "the same as a page"
    return shlex.join(["torchgauge", "report", display_path(saved), "--open"]), "the same as a page"


def typed_words(options: argparse.Namespace, names: Collection[str]) -> list[str]:
    """Return the target and the options of these names, as they were typed."""
    words = [options.target]
    for action, values in options.parser.typed_options:
        if action.dest in names:
            words += [action.option_strings[0], *values]
    return words
