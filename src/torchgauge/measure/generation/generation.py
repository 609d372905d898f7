"""Measure how a language model generates: the grid of its cells, and what one forward of it does."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.findings.catalogue import generation_findings
from torchgauge.analyze.generation.bounds import bounded
from torchgauge.analyze.generation.cells import cell as cell_of
from torchgauge.analyze.generation.fits import fits
from torchgauge.analyze.generation.largest_batch import largest_batch
from torchgauge.analyze.generation.predictions import predict
from torchgauge.device.environment import environment
from torchgauge.device.roofs import roofs as machine
from torchgauge.measure.description import describe
from torchgauge.measure.effort import effort_named
from torchgauge.measure.forward import opened
from torchgauge.measure.generation.cell_stages import CellStages
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.generator import generator
from torchgauge.measure.generation.grid import WARMUP, CellRun, Grid
from torchgauge.measure.generation.prompts import Prompts
from torchgauge.measure.interrupts import Interrupts
from torchgauge.measure.runner import Runner
from torchgauge.measure.step import without_values
from torchgauge.measure.work import roofs as roofs_probe
from torchgauge.measure.work import size as size_probe
from torchgauge.progress import Progress
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.work.roofline import Roofs
from torchgauge.targets.builds.source import Source
from torchgauge.targets.placement import Placement
from torchgauge.targets.target import TargetRequest


def measure(
    source: Source,
    options: GenerationOptions,
    progress: Progress,
    *,
    assistant: Source | None = None,
) -> Generation:
    """Measure every cell of the grid, then work, memory and trees of single forwards.

    Raises what loading raises, InputError `no-generation`, MeasurementError `meta-model`. What a
    cell raises is its status and reason; Ctrl-C after loading returns what was measured.
    """
    raise NotImplementedError
