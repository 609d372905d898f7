"""How the page's figures were obtained, and in which environment."""

from __future__ import annotations

from typing import Any

import msgspec

from torchgauge import units
from torchgauge.analyze.work.roof_quality import description, reservations
from torchgauge.records.environment import Environment
from torchgauge.records.latency.latency import Latency
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.report.content import sections
from torchgauge.report.page.page_series import rows
from torchgauge.report.tables.tree_tables import coverage

Rows = list[list[str]]
KINDS = (
    ["measured", "on this machine, with an interval where samples allow one"],
    ["counted", "exact, from shapes; nothing was timed for it"],
    ["estimated", "computed by a named model from measured and counted figures"],
    ["unknown", "not measured or not measurable; a sum that lacks it says 'at least'"],
)


def profile_method(profile: Profile) -> dict[str, Any]:
    """Return how each part was measured, and every figure of the summary."""
    parts: dict[str, Rows] = {"What the words mean": [*KINDS]}
    if profile.latency is not None:
        parts["Latency"] = _latency(profile.latency)
    if profile.cost is not None:
        parts["Work"] = _cost(profile.cost)
    if profile.memory is not None:
        parts["Memory"] = [["recorded by", profile.memory.method, ""]]
    if profile.roofline is not None:
        roofs = profile.roofline.roofs
        parts["Roofs"] = [
            [description(roofs), roofs.method, " ".join(reservations(roofs))],
            *([name, source, ""] for name, source in roofs.sources.items()),
        ]
    if profile.tree is not None:
        parts["Tree"] = tree_facts(profile.tree)
    parts["Passes"] = [
        [probe_pass.probe, units.time(probe_pass.duration, 3), f"in {probe_pass.process} process"]
        for probe_pass in profile.passes
    ]
    figures = [
        [section.title, section.how, rows(section.rows), list(section.notes)]
        for section in sections.sections(profile)[1:]
    ]
    return {"parts": [[title, part] for title, part in parts.items() if part], "figures": figures}


def _latency(record: Latency) -> Rows:
    warmup = sum(run.warmup for run in record.processes)
    steady = sum(len(run.steady_samples) for run in record.processes)
    return [
        ["interval", record.interval_method, ""],
        ["processes", f"{len(record.processes):,}", ""],
        ["samples", f"{steady:,}", f"after {warmup:,} warm-up calls, which no figure includes"],
        ["steady", "yes" if record.steady else "no: no end of the warm-up was found", ""],
        ["stopped", record.stop, ""],
        *([["caches", "emptied before each call", ""]] if record.cold_cache else []),
    ]


def _cost(record: Cost) -> Rows:
    unknown = [[name, f"{calls:,} calls", "no formula"] for name, calls in record.unknown.items()]
    return [
        ["counted on", f"{record.counted_on} tensors", ""],
        ["coverage", units.percent(record.coverage, 4), "of operator calls have a formula"],
        ["conventions", "1 MAC = 2 FLOP; vector work 1 FLOP per element", ""],
        ["bytes", "inputs read and outputs written once per operator", "no caches, no re-reads"],
        *unknown,
    ]


def tree_facts(tree: Tree) -> Rows:
    """Return how much of a step is in layers, what the passes cost, and how far the sum is off."""
    root, facts = tree.root, []
    if covered := coverage(root):
        facts.append(["coverage", *covered])
    for tree_pass in tree.passes:
        cost = "" if tree_pass.overhead is None else f"{tree_pass.overhead:.3f}× the bare step"
        facts.append(
            [tree_pass.name, f"{tree_pass.steps:,} step{'s' * (tree_pass.steps != 1)}", cost]
        )
    bare = next((tree_pass.bare for tree_pass in tree.passes if tree_pass.bare), None)
    if tree.residual is not None and bare:
        side = "above" if tree.residual >= 0 else "below"
        note = f"{units.percent(abs(tree.residual) / bare)} {side} the bare step's"
        facts.append(["sum of parts", units.time(root.host_time), f"{note} {units.time(bare)}"])
    if tree.headline_ratio is not None:
        note = "the tree's sum ÷ the headline latency"
        facts.append(["headline", f"{tree.headline_ratio:.2f}×", note])
    for use in tree.devices:
        share = units.percent(use.busy / (use.busy + use.idle)) if use.busy + use.idle else ""
        note = f"idle for {units.time(use.idle, 3)}"
        facts.append([f"device {use.device}", f"{share} busy", note])
    return facts


def environment(record: Profile | Loop) -> dict[str, Any]:
    """Return machine, software and settings as the record has them, and what doctor found."""
    env: Environment = record.environment
    machine, software, settings = env.machine, env.software, env.settings
    return {
        "groups": [
            ["Machine", [*_machine(env), ["fingerprint", machine.fingerprint, ""]]],
            ["Software", _plain(msgspec.structs.asdict(software))],
            ["Settings", _plain(msgspec.structs.asdict(settings))],
        ],
        "findings": [
            [finding.severity, finding.title, finding.evidence, finding.remedy]
            for finding in env.findings
        ],
        "created": env.created,
    }


def _machine(env: Environment) -> Rows:
    machine = env.machine
    cores = [
        (machine.physical_cores, "physical"),
        (machine.logical_cores, "logical"),
        (machine.usable_cores, "usable"),
        (machine.cpu_quota, "by quota"),
    ]
    gpus = [
        [f"GPU {index}", gpu.name, units.size(gpu.memory, 3)]
        for index, gpu in enumerate(machine.gpus)
    ]
    return [
        ["processor", machine.cpu, machine.architecture],
        ["cores", ", ".join(f"{n:g} {kind}" for n, kind in cores if n is not None), ""],
        ["memory", units.size(machine.memory, 3), ""],
        *gpus,
        ["system", machine.system, ""],
    ]


def _plain(values: dict[str, Any]) -> Rows:
    """Return what is set, a mapping's entries as rows of their own."""
    facts = []
    for name, value in values.items():
        if isinstance(value, dict):
            facts += [[key, str(setting), name] for key, setting in value.items()]
        elif value not in (None, ""):
            text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
            facts.append([name.replace("_", " "), text, ""])
    return facts
