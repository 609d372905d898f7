"""`torchgauge generate`: how a language model generates, by batch, prompt and cache."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from torchgauge.cli import formats, verdicts
from torchgauge.cli.options import target
from torchgauge.cli.options.latency import add_effort_options
from torchgauge.cli.options.numbers import positive, positives, seconds, whole_number
from torchgauge.cli.options.tree import add_energy_option, add_view_options, shown_options
from torchgauge.cli.output import prints_to_stderr
from torchgauge.errors import ExitCode

if TYPE_CHECKING:
    from torchgauge.measure.generation.generation_options import GenerationOptions
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.verdict import Verdict
    from torchgauge.report.content.document import Document

DESCRIPTION = """\
Measure how a language model generates: time to the first token, time per token, tokens per second,
cache, work and bounds of prefill and decode, how all grow with context and batch.

  torchgauge generate hf:llama-3-8b --prompt 128,1024 --batch 1,4
  torchgauge generate FOLDER --cache dynamic,static --new 128 --predict 8x4096
  torchgauge generate FOLDER --assistant SMALLER_FOLDER

TARGET is as of profile, with a generate() of transformers or one's own, or a forward that takes
(ids, past_key_values=…, use_cache=True). Every combination of batch, prompt and cache is a shape.
A shape that runs out of memory is a result, and the rest goes on; Ctrl-C keeps what is done.
With --threshold ttft:200ms tpot:20ms tokens:100tokens/s each shape is held to the limits.
"""
FORMS = (
    *("json", "text", "csv", "brief", "layers", "operators", "kernels"),
    *("markdown", "html", "openmetrics", "junit"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    target.add_target(parser)
    _add_shapes(parser.add_argument_group("the shapes (values with commas between them)"))
    _add_run_options(parser.add_argument_group("what is run"))
    _add_effort(parser.add_argument_group("how it is measured"))
    add_view_options(parser.add_argument_group("what the summary shows"), depth=2, depth_help="2")
    target.add_threshold(
        parser.add_argument_group("what must hold"),
        "ttft:200ms tpot:20ms tokens:100tokens/s memory:2GB energy_per_token:50mJ params:8B",
    )
    formats.add_all(parser.add_argument_group("what comes out"), forms=FORMS)


def _add_shapes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prompt",
        type=positives,
        default=(),
        metavar="N,N",
        help="tokens of a prompt (default: those of the inputs, or 128)",
    )
    group.add_argument(
        "--batch",
        type=positives,
        default=(),
        metavar="N,N",
        help="prompts at once (default: those of the inputs, or 1)",
    )
    group.add_argument(
        "--new", type=whole_number, default=64, metavar="N", help="tokens to make (default: 64)"
    )
    group.add_argument(
        "--cache",
        type=_names,
        default=("dynamic",),
        metavar="C,C",
        help="dynamic (default), static or none",
    )
    group.add_argument(
        "--beams", type=positive, default=1, metavar="N", help="sequences per prompt (default: 1)"
    )
    group.add_argument(
        "--predict",
        type=_shapes,
        default=(),
        metavar="BxP,BxP",
        help="shapes to estimate, such as 8x4096: batch 8, prompt 4096",
    )


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    group.set_defaults(trust=False)
    group.add_argument(
        "--assistant", metavar="TARGET", help="draft model of assisted decoding, as TARGET"
    )
    target.add_model_option(
        group, "--input", help="shape of an input, such as input_ids=1x128:int64<32000; repeatable"
    )
    target.add_model_option(group, "--weights")
    target.add_model_option(group, "--device", default="auto")
    target.add_model_option(group, "--precision")


def _add_effort(group: argparse._ArgumentGroup) -> None:
    add_effort_options(
        group,
        quick="time 3 calls of each shape in place of 5: wider intervals",
        precise="time 15 calls of each shape: narrower intervals",
    )
    group.add_argument(
        "--budget",
        type=seconds,
        metavar="SECONDS",
        help="time for the calls at most; every shape is timed once (default: no limit)",
    )
    for name, words in (
        ("trees", "record no layers and operators of a prefill and a decode step"),
        ("memory", "measure no peak of memory"),
        ("roofs", "judge no bounds by the roofs of this machine"),
    ):
        group.add_argument(f"--no-{name}", action="store_false", dest=name, help=words)
    add_energy_option(group)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _shapes(text: str) -> tuple[tuple[int, int], ...]:
    """Return batches with prompts: "8x4096,1x128"."""
    shapes = []
    for part in _names(text.lower().replace("×", "x")):
        batch, _, prompt = part.partition("x")
        if not (batch.isdecimal() and prompt.isdecimal() and int(batch) and int(prompt)):
            message = f"'{part}' is not a batch and a prompt, such as 8x4096"
            raise argparse.ArgumentTypeError(message)
        shapes.append((int(batch), int(prompt)))
    return tuple(shapes)


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; return the exit code."""
    limits = verdicts.checked_limits(options, FORMS, "A generation", "ttft:200ms")
    from torchgauge.analyze.gate.shape_gate import judged_shapes
    from torchgauge.api.generations import generation_request

    request = target.target_request(options, precision=options.precision)
    assistant = None
    if options.assistant is not None:
        draft = {"spec": options.assistant, "inputs": (), "weights": None}
        assistant = target.target_request(options, precision=options.precision, **draft)
    with prints_to_stderr():
        generation = generation_request(request, _generation_options(options), assistant)
    verdict = judged_shapes(limits, generation) if limits else None
    document = functools.partial(_document, generation, options)
    interrupted = verdicts.report(generation, verdict, options, "generation", document)
    return code(generation, verdict, interrupted=interrupted)


def _generation_options(options: argparse.Namespace) -> GenerationOptions:
    from torchgauge.measure.generation.generation_options import GenerationOptions

    return GenerationOptions(
        prompts=options.prompt,
        batches=options.batch,
        new_tokens=options.new,
        caches=options.cache,
        beams=options.beams,
        predict=options.predict,
        effort=options.effort,
        budget=options.budget,
        trees=options.trees,
        memory=options.memory,
        roofs=options.roofs,
        energy=options.energy,
    )


def _document(generation: Generation, options: argparse.Namespace) -> Document:
    from torchgauge.cli.steps.next_steps import with_next_steps
    from torchgauge.report import kinds

    return with_next_steps(kinds.document(generation, shown_options(options)), generation, options)


def code(generation: Generation, verdict: Verdict | None, *, interrupted: bool) -> ExitCode:
    """Return the exit code: 1 where a probe failed or no shape was measured, else the verdict's."""
    if generation.interrupted or interrupted:
        return ExitCode.INTERRUPTED
    if not generation.complete or not generation.done:
        return ExitCode.MEASUREMENT_FAILED
    return ExitCode.DONE if verdict is None else verdict.exit_code
