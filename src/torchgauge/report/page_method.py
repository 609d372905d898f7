"""How the page's figures were got, and in which environment."""

from __future__ import annotations

from typing import Any

import msgspec

from torchgauge import units
from torchgauge.analyze.roof_quality import description, reservations
from torchgauge.model.cost import Cost
from torchgauge.model.environment import Environment
from torchgauge.model.latency import Latency
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.tree import Tree
from torchgauge.report import sections
from torchgauge.report.page_series import rows

Rows = list[list[str]]
KINDS = (
    ["measured", "on this machine, with an interval where samples allow one"],
    ["counted", "exact, from shapes; nothing was timed for it"],
    ["estimated", "computed from measured and counted figures by a model that is named"],
    ["unknown", "could not be told; it counts as nothing in a sum, which then says at least"],
)


def of_profile(profile: Profile) -> dict[str, Any]:
    """Return what was done, part by part, and every figure of the summary."""
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
        parts["Tree"] = of_tree(profile.tree)
    parts["Passes"] = [
        [one.probe, units.time(one.duration, 3), f"in {one.process} process"]
        for one in profile.passes
    ]
    figures = [
        [one.title, one.how, rows(one.rows), list(one.notes)]
        for one in sections.sections(profile)[1:]
    ]
    return {"parts": [[title, part] for title, part in parts.items() if part], "figures": figures}


def _latency(found: Latency) -> Rows:
    warmup = sum(run.warmup for run in found.processes)
    steady = sum(len(run.steady_samples) for run in found.processes)
    return [
        ["interval", found.interval_method, ""],
        ["processes", f"{len(found.processes):,}", ""],
        ["samples", f"{steady:,}", f"after {warmup:,} of warm-up, which are in no figure"],
        ["steady", "yes" if found.steady else "no: no end of the warm-up was found", ""],
        ["stopped", found.stop, ""],
        *([["caches", "emptied before each call", ""]] if found.cold_cache else []),
    ]


def _cost(found: Cost) -> Rows:
    unknown = [[name, f"{calls:,} calls", "no formula"] for name, calls in found.unknown.items()]
    return [
        ["counted on", f"{found.counted_on} tensors", ""],
        ["coverage", units.percent(found.coverage, 4), "of operator calls have a formula"],
        ["conventions", "1 MAC = 2 FLOP; vector work 1 FLOP per element", ""],
        ["bytes", "inputs read and outputs written once per operator", "no caches, no re-reads"],
        *unknown,
    ]


def of_tree(tree: Tree) -> Rows:
    """Return how much of a step is in layers, what the passes cost, and how far the sum is off."""
    root, found = tree.root, []
    whole = root.time
    if whole:
        outside = sum(child.time or 0.0 for child in root.children if child.kind == "bucket")
        text = f"{units.percent(1 - outside / whole, 3)} in layers"
        found.append(["coverage", text, f"{units.percent(outside / whole)} in buckets"])
    for one in tree.passes:
        cost = "" if one.overhead is None else f"{one.overhead:.3f}× the bare step"
        found.append([one.name, f"{one.steps:,} step{'s' * (one.steps != 1)}", cost])
    bare = next((one.bare for one in tree.passes if one.bare), None)
    if tree.residual is not None and bare:
        side = "above" if tree.residual >= 0 else "below"
        note = f"{units.percent(abs(tree.residual) / bare)} {side} the bare step's"
        found.append(["parts' sum", units.time(root.host_time), f"{note} {units.time(bare)}"])
    if tree.headline_ratio is not None:
        note = "the tree's sum ÷ the headline latency"
        found.append(["headline", f"{tree.headline_ratio:.2f}×", note])
    for use in tree.devices:
        share = units.percent(use.busy / (use.busy + use.idle)) if use.busy + use.idle else ""
        note = f"idle for {units.time(use.idle, 3)}"
        found.append([f"device {use.device}", f"{share} busy", note])
    return found


def environment(record: Profile | Loop) -> dict[str, Any]:
    """Return machine, software and settings as the record has them, and what doctor found."""
    found: Environment = record.environment
    machine, software, settings = found.machine, found.software, found.settings
    return {
        "groups": [
            ["Machine", [*_machine(found), ["fingerprint", machine.fingerprint, ""]]],
            ["Software", _plain(msgspec.structs.asdict(software))],
            ["Settings", _plain(msgspec.structs.asdict(settings))],
        ],
        "findings": [[one.severity, one.title, one.evidence, one.remedy] for one in found.findings],
        "created": found.created,
    }


def _machine(found: Environment) -> Rows:
    machine = found.machine
    cores = [
        (machine.physical_cores, "physical"),
        (machine.logical_cores, "logical"),
        (machine.usable_cores, "usable"),
        (machine.cpu_quota, "by quota"),
    ]
    gpus = [
        [f"GPU {at}", gpu.name, units.size(gpu.memory, 3)] for at, gpu in enumerate(machine.gpus)
    ]
    return [
        ["processor", machine.cpu, machine.architecture],
        ["cores", ", ".join(f"{n:g} {what}" for n, what in cores if n is not None), ""],
        ["memory", units.size(machine.memory, 3), ""],
        *gpus,
        ["system", machine.system, ""],
    ]


def _plain(values: dict[str, Any]) -> Rows:
    """Return what is set, a mapping's entries as rows of their own."""
    found = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += [[key, str(one), name] for key, one in value.items()]
        elif value not in (None, ""):
            shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
            found.append([name.replace("_", " "), shown, ""])
    return found
