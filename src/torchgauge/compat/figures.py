"""Figures by name, as Profiler and ModelProfiler return them: a dict that prints as a table."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any

from torchgauge import randomness
from torchgauge.errors import InputError
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.node import Node
from torchgauge.records.timeline.tables import table


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
    time, total_time = _sum([node.time for node in nodes]), root.time
    return {
        "layers": [node.row.path for node in nodes],
        "calls": sum(node.calls for node in nodes) if nodes else None,
        "latency": None if time is None else time * 1e3,
        "share": time / total_time if time is not None and total_time else None,
        "flops": _sum([node.flops for node in nodes]),
        "memory": _sum([node.allocations for node in nodes]),
        "parameters": _sum([node.parameters for node in nodes]),
    }


def _sum(values: list[Any]) -> Any:
    known_values = [value for value in values if value is not None]
    return sum(known_values) if known_values else None
