"""Results: a profile as the nested mapping that scripts read, times in ms, sizes in bytes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchgauge import randomness
from torchgauge.errors import InputError
from torchgauge.records.latency.latency import Latency
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.quantity import known_sum, quantity_of
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tables import table
from torchgauge.report.console.line import line
from torchgauge.report.console.text import Text

Group = dict[str, Any]

_TIMES = ("mean", "median", "p50", "p90", "p95", "p99", "min", "max", "std", "first_call")
_MS = 1e3


class Results(Mapping[str, Any]):
    """What ModelProfiler measured: `["latency"]["mean"]` in ms, `["memory"]["peak"]` in bytes.

    `["layers"]` and `["operators"]` of a detailed analysis are rows with times in ms, under names
    that say so: "host_time_ms", "Self CPU ms".
    `profile` is the record behind it, in SI units, with intervals and raw samples. Of a benchmark
    `configuration` is what was asked for, and `error` why it failed: then there are no figures.
    Unknown is None.
    """

    def __init__(
        self,
        profile: Profile | None,
        *,
        end_to_end: Latency | None = None,
        configuration: Mapping[str, Any] | None = None,
        error: Exception | None = None,
    ) -> None:
        self.profile = profile
        self.end_to_end = end_to_end
        self.configuration = dict(configuration or {})
        self.error = error
        self._groups: Group = {} if profile is None else _groups(profile, end_to_end)
        if configuration is not None:
            self._groups |= {"configuration": self.configuration, "error": error and str(error)}

    def __getitem__(self, name: str) -> Any:
        return self._groups[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        if self.profile is None:
            return line("Results", [str(self.error)])
        return repr(self.profile).replace("Profile", "Results", 1)

    def __str__(self) -> str:
        return str(self.error) if self.profile is None else str(self.profile)

    def __rich__(self) -> Any:
        return Text.of_lines(str(self.error)) if self.profile is None else self.profile

    def _repr_html_(self) -> str | None:
        return None if self.profile is None else self.profile._repr_html_()


def _groups(profile: Profile, end_to_end: Latency | None) -> Group:
    groups: Group = {
        "latency": _latency(profile.latency, end_to_end),
        "throughput": _throughput(profile),
        "memory": _memory(profile),
        "model": _model(profile),
        "system": _system(profile),
    }
    if profile.tree is not None:
        groups["layers"] = rows_in_ms(profile.table("layers"))
        groups["operators"] = rows_in_ms(profile.table("operators"))
    return groups


def rows_in_ms(table: Table) -> list[Group]:
    """Return a table's rows with times in ms, under names that say so."""
    columns: dict[str, list[Any]] = {}
    for name, values in table.columns.items():
        if quantity_of(name) == "time":
            unit = " ms" if " " in name else "_ms"
            columns[name + unit] = [_ms(value) for value in values]
        else:
            columns[name] = values
    return Table(columns).rows()


def _latency(latency: Latency | None, end_to_end: Latency | None) -> Group:
    group: Group = {name: _ms(getattr(latency, name, None)) for name in _TIMES}
    interval = None if latency is None else latency.interval
    group["interval"] = None if interval is None else (_ms(interval.low), _ms(interval.high))
    group["device_time"] = _ms(None if latency is None else latency.device_time)
    group["samples"] = None if latency is None else len(latency.samples)
    if end_to_end is not None:
        group["end_to_end"] = {name: _ms(getattr(end_to_end, name)) for name in _TIMES}
        group["stages"] = {stage.name: _ms(stage.median) for stage in end_to_end.stages}
    return group


def _throughput(profile: Profile) -> Group:
    throughput = profile.throughput
    return {
        "samples_per_second": getattr(throughput, "samples", None),
        "tokens_per_second": getattr(throughput, "tokens", None),
        "images_per_second": getattr(throughput, "images", None),
        "requests_per_second": getattr(throughput, "calls", None),
        "batches_per_second": getattr(throughput, "calls", None),
        "batch_size": profile.target.batch,
    }


def _memory(profile: Profile) -> Group:
    memory = profile.memory
    names = ("peak", "average", "per_sample", "rss_peak", "reserved", "allocator_peak")
    group: Group = {name: getattr(memory, name, None) for name in names}
    fragmentation = None if memory is None else memory.fragmentation
    group["fragmentation"] = None if fragmentation is None else fragmentation.reserved_unused
    parts: Group = {} if memory is None else dict(memory.parts)
    if profile.size is None:  # what of it is a plain callable's parameters is not known
        parts |= dict.fromkeys(parts.keys() & {"parameters", "buffers"})
    return group | parts


def _model(profile: Profile) -> Group:
    size, cost, memory = profile.size, profile.cost, profile.memory
    return {
        "parameters": getattr(size, "parameters", None),
        "size": getattr(size, "bytes", None),
        "disk_size": getattr(size, "disk_bytes", None),
        "flops": getattr(cost, "exact_flops", None),
        "flops_at_least": getattr(cost, "least_flops", None),
        "macs": None if cost is None or cost.exact_flops is None else cost.macs,
        "activation_memory": None if size is None else getattr(memory, "activations", None),
    }


def _system(profile: Profile) -> Group:
    """Use of the machine during the run: cores, fractions, bytes, bytes per second."""
    system = profile.system
    names = ("disk_read", "disk_write", "network_sent", "network_received")
    group: Group = {name: getattr(system, name, None) for name in names}
    group["cpu_cores"] = None if system is None else system.cores.mean
    group["machine_busy"] = getattr(getattr(system, "machine", None), "mean", None)
    group["rss"] = getattr(getattr(system, "rss", None), "max", None)
    gpu = system.gpus[0] if system is not None and system.gpus else None
    for name in ("utilization", "memory", "power", "temperature"):
        use = getattr(gpu, name, None)
        group[f"gpu_{name}"] = None if use is None else use.mean
    return group


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS


class Figures(dict[str, Any]):
    """A dict of figures: printed it has one in a line, a notebook shows it as a table.

    Its `repr` is one line of the first of them.
    """

    def __str__(self) -> str:
        from torchgauge.report.console import blocks
        from torchgauge.report.console.plain import plain

        with randomness.preserved_state():
            return plain(lambda width: blocks.view(self._document(), width))

    def __repr__(self) -> str:
        from torchgauge.report.console.line import line

        return line("Figures", (f"{label} {text}" for label, text in self._document().facts.pairs))

    def __rich__(self) -> Any:
        from torchgauge.report.console.text import Text

        return Text.of_lines(str(self))

    def _repr_html_(self) -> str:
        from torchgauge.report.notebook.notebook import fragment

        return fragment(self._document())

    def _document(self) -> Any:
        from torchgauge.report import parts
        from torchgauge.report.content.document import Document

        return Document("", facts=parts.fields(self))


def by_name(record: Profile, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the sums over the layers of each name.

    Raises InputError `layer-unknown` where none fits any, `no-tree`.
    """
    if record.tree is None:
        table(None, "layers")
    assert record.tree is not None  # noqa: S101 - it would have been said
    root = record.tree.root
    layers = [node for node in root.walk() if node.kind in ("layer", "model")]
    patterns = (names,) if isinstance(names, str) else names
    layers_by_name = {name: _outermost(layers, name) for name in patterns}
    if not any(layers_by_name.values()):
        kinds = ", ".join(dict.fromkeys(node.row.path for node in layers if node.row.path))
        raise InputError(
            f"No layer is named like {', '.join(map(repr, patterns))}.",
            id="layer-unknown",
            cause=f"The layers are {kinds[:500]}{'…' if len(kinds) > 500 else ''}.",
            remedy="Give a path, a pattern such as '*.attn', or part of a layer's name or class.",
        )
    return {name: _figures(nodes, root) for name, nodes in layers_by_name.items()}


def _outermost(layers: list[Node], name: str) -> list[Node]:
    """Return the layers that fit, without those inside of another that does."""
    exact = [node for node in layers if node.row.path == name]
    fit = exact or [node for node in layers if _fits(node, name.lower())]
    row_indices = {node.index for node in fit}
    return [node for node in fit if not _inside(node, row_indices)]


def _fits(node: Node, name: str) -> bool:
    path, kind = node.row.path.lower(), node.row.type.lower()
    if any(sign in name for sign in "*?["):
        return node.kind == "layer" and fnmatch.fnmatchcase(path, name)
    return node.kind == "layer" and (name in path or name in kind)


def _inside(node: Node, row_indices: set[int]) -> bool:
    above = node.parent
    while above is not None:
        if above.index in row_indices:
            return True
        above = above.parent
    return False


def _figures(nodes: list[Node], root: Node) -> dict[str, Any]:
    time, total_time = known_sum([node.time for node in nodes]), root.time
    return {
        "layers": [node.row.path for node in nodes],
        "calls": sum(node.calls for node in nodes) if nodes else None,
        "latency": None if time is None else time * 1e3,
        "share": time / total_time if time is not None and total_time else None,
        "flops": known_sum([node.flops for node in nodes]),
        "memory": known_sum([node.allocations for node in nodes]),
        "parameters": known_sum([node.parameters for node in nodes]),
    }
