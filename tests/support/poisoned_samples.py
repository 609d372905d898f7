"""A record of every kind, with as much in it as goes in, and texts of strangers."""

import functools

import msgspec
from tests.support import (
    advices,
    evidence,
    generations,
    pages,
    parallels,
    poison,
    serving_pages,
    servings,
    trends,
    verdicts,
)
from tests.support import exported_records as records
from tests.support import records as plain
from tests.support.hostile_texts import WORD

import torchgauge as tg
from torchgauge.analyze.memory.training_memory import MASTERS, OPTIMIZER
from torchgauge.records.doctor import Check, Diagnosis
from torchgauge.records.finding import Finding
from torchgauge.records.latency.latency import TrainingPhase, TrainingTime
from torchgauge.records.memory.memory import MemoryPart, OptimizerMemory, TrainingMemory


def diagnosis():
    finding = Finding(id="x", severity="serious", title="A", evidence="B", remedy="C")
    check = Check(id="x", title="A check", status="found", observed="seen", findings=(finding,))
    return Diagnosis(environment=plain.environment(), fingerprint="f", checks=(check,))


def count():
    part = MemoryPart(bytes=10, how="counted", by_dtype={"float32": 10})
    one = OptimizerMemory(
        states=part,
        lower_bound=40,
        total=50,
        moment="backward",
        at_peak={"parameters": 10, "gradients": 40},
    )
    sides = {MASTERS: one, OPTIMIZER: one}
    parts = ("parameters", "buffers", "inputs", "gradients", "activations")
    training = TrainingMemory(**dict.fromkeys(parts, part), optimizers=sides, optimizer=OPTIMIZER)
    return msgspec.structs.replace(records.count(), training=training)


def trained():
    phases = tuple(
        TrainingPhase(name=name, seconds=0.002, share=0.25)
        for name in ("forward", "backward", "optimizer", "rest")
    )
    time = TrainingTime(step=0.008, phases=phases, clock="host", optimizer="A", autocast="B")
    return records.profile(training=time)


def samples():
    """Return a record of every kind, with as much in it as goes in."""
    every = records.every() | {
        "count with training": count(),
        "training run that says little": records.untold_training_run(),
        "profile of training": trained(),
        "profile on a page": pages.with_tree(),
        "diagnosis": diagnosis(),
        "generation": generations.grid(),
        "profile of a shape": generations.grid().profiles[0],
        "load": servings.capacity_found(30),
        "load of streams": servings.streamed(12),
        "profile of a level": servings.capacity_found(30).profiles[3],
        "parallel": parallels.parallel(),
        "plan": serving_pages.plan(),
        "refused plan": serving_pages.refused_plan(),
        "trend": trends.trend(),
        "advice": advices.advice(),
        "trace": evidence.trace(),
        "trace with a timeline": evidence.drawn_trace(),
        "trace diff": evidence.diff(),
        "snapshot": evidence.snapshot(),
        "growth": evidence.growth(),
        "verdict": verdicts.odd(),
        "verdict that failed": verdicts.failed(),
        "comparison": verdicts.odd().comparison,
        "comparison of profiles": tg.compare(pages.with_tree(), plain.profile()),
    }
    return {name: poison.filled(record) for name, record in every.items()}


SAMPLES = samples()


@functools.cache
def sample(name, template="{0}"):
    """The sample of a name with this around each of its texts."""
    return with_texts(SAMPLES[name], template)


def with_texts(record, template):
    token = poison.tokens()

    def write(place, text):
        word = token(place, text)
        return template.format(word) if WORD.fullmatch(word) else word

    return poison.poisoned(record, write)
