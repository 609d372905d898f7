"""The tree's nodes as flat tables: layers, operators, kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from torchgauge.model import rendering
from torchgauge.model.counted_at import ITSELF, NOWHERE, counted_at
from torchgauge.model.tree import Node, Tree, base_name

# An operator's node, then those that it ran again as.
Chain = list[Node]


@dataclasses.dataclass(frozen=True, repr=False)
class Table:
    """Named columns of equal length; a cell is None where its figure is unknown.

    Printed, or shown by a notebook, it is a table with units; `columns` and `rows()` are in SI.
    """

    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def rows(self) -> list[dict[str, Any]]:
        """Return each row as a mapping."""
        names = list(self.columns)
        return [
            dict(zip(names, values, strict=True))
            for values in zip(*self.columns.values(), strict=True)
        ]

    def to_pandas(self) -> Any:
        """Return a DataFrame. Raises MissingExtra without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            from torchgauge.errors import missing_extra

            raise missing_extra("pandas", "pandas", "A DataFrame") from error
        return pd.DataFrame(self.columns)

    def __str__(self) -> str:
        return rendering.text(self, "table")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return rendering.text(self, "table", html=True)


def table(tree: Tree | None, kind: str, **options: Any) -> Table:
    """Return the nodes of one kind: "layers", "operators" or "kernels".

    Raises InputError `no-tree` where there is none, `table-unknown`.
    """
    from torchgauge.errors import InputError
    from torchgauge.model.kernel_table import kernels

    makers: dict[str, Callable[..., Table]] = {
        "layers": layers,
        "operators": operators,
        "kernels": kernels,
    }
    if kind not in makers:
        raise InputError(
            f"There is no table '{kind}'.",
            id="table-unknown",
            remedy=f"Ask for one of {', '.join(makers)}.",
        )
    if tree is None:
        raise InputError(
            "The profile has no tree, of which tables are made.",
            id="no-tree",
            cause='It was made with detail="summary", on the meta device, or the probe failed.',
            remedy='Profile with detail="operators" or "kernels".',
        )
    return makers[kind](tree, **options)


def layers(tree: Tree) -> Table:
    """Return one row per layer, in calling order: times in seconds, FLOP, bytes, elements.

    `host_time_self` and `device_time_self` hold the layer's own operators, `efficiency` is the time
    at the device's roofs as a share of the layer's.
    """
    found = [node for node in tree.root.walk() if node.kind in ("model", "layer")]
    owned = {node.at: own(node) for node in found}
    figures: dict[str, Callable[[Node], Any]] = {
        "path": lambda node: node.row.path,
        "type": lambda node: node.row.type,
        "calls": lambda node: node.calls,
        "host_time": lambda node: node.host_time,
        "host_time_self": lambda node: sum_of(owned[node.at], "host"),
        "device_time": lambda node: node.device_time,
        "device_time_self": lambda node: sum_of(owned[node.at], "device"),
        "flops": lambda node: node.flops,
        "bytes": lambda node: node.bytes,
        "flops_per_second": lambda node: node.flops_per_second,
        "bytes_per_second": lambda node: node.bytes_per_second,
        "intensity": lambda node: node.intensity,
        "bound": lambda node: node.bound,
        "efficiency": lambda node: node.efficiency,
        "allocated": lambda node: node.memory,
        "allocations": lambda node: node.allocations,
        "peak": lambda node: node.peak,
        "retained_for_backward": lambda node: node.retained_for_backward,
        "parameters": lambda node: node.parameters,
    }
    return Table({name: [of(node) for node in found] for name, of in figures.items()})


def own(layer: Node) -> list[Node]:
    """Return the layer and all below it that is in no layer that it calls."""
    found, pending = [], [layer]
    while pending:
        node = pending.pop()
        found.append(node)
        pending += [child for child in node.children if child.kind not in ("layer", "bucket")]
    return found


def sum_of(nodes: Iterable[Node], figure: str) -> float | int | None:
    """Return the sum of the nodes' own figures; seconds of times. None where none is known."""
    known = [value for node in nodes if (value := getattr(node.row, figure)) is not None]
    if not known:
        return None
    total: int = sum(known)
    return total * 1e-9 if figure in ("host", "device") else total


def operators(tree: Tree, *, by_shape: bool = False) -> Table:
    """Return one row per operator, most time of its own first, under torch.profiler's names.

    Times in seconds of one step, columns named % in percent of it; `by_shape` tells the same
    operator on other shapes apart. `CPU total` holds what an operator calls; the columns of a
    device are there where one worked. As in torch's table, overloads are one operator, and one that
    calls nothing but itself under another overload ran once. `flops` and `bytes` are its own, and
    per second of the time with what it calls (at least so many where some calls are `nowhere`);
    `counted at` says where its work is counted (see `counted_at`; each place where its calls
    differ), None where nothing was.
    """
    groups: dict[tuple[str, str], list[Chain]] = {}
    for node in tree.root.walk():
        if node.kind == "operator" and not _again(node):
            shape = node.row.shapes if by_shape else ""
            groups.setdefault((base_name(node.name), shape), []).append(_whole(node))
    root = tree.root
    wholes = root.host_time or 0.0, root.device_time
    counted = root.flops is not None
    rows = [
        _operator(name, shape, chains, wholes, tree.allocator) | _work(chains, counted)
        for (name, shape), chains in groups.items()
    ]
    order = "Self CPU" if wholes[1] is None else "Self CUDA"
    rows.sort(key=lambda row: -(row[order] or 0.0))
    columns: dict[str, list[Any]] = {name: [] for name in (rows[0] if rows else {})}
    for row in rows:
        for name, value in row.items():
            columns[name].append(value)
    if not by_shape:
        columns.pop("Input Shapes", None)
    return Table(columns)


def _again(node: Node) -> bool:
    """Whether it is all that an operator of the same name did."""
    above = node.parent
    return (
        above is not None
        and above.kind == "operator"
        and len(above.children) == 1
        and above.calls == node.calls
        and base_name(above.name) == base_name(node.name)
    )


def _whole(node: Node) -> Chain:
    """Return the node with those that it ran again as."""
    found = [node]
    while len(found[-1].children) == 1 and _again(found[-1].children[0]):
        found.append(found[-1].children[0])
    return found


def _operator(
    name: str,
    shape: str,
    chains: list[Chain],
    wholes: tuple[float, float | None],
    allocator: str,
) -> dict[str, Any]:
    nodes = [chain[0] for chain in chains]
    selves = [one for chain in chains for one in chain]
    calls = sum(node.calls for node in nodes)
    memory = [size for node in nodes if (size := node.memory) is not None]
    host, device = wholes
    row = {
        "Name": name,
        "Input Shapes": shape,
        **_times("CPU", sum_of(selves, "host"), [n.host_time for n in nodes], host, calls),
    }
    if device is not None:
        launched = [one for node in selves for one in (node, *_kernels(node))]
        totals = [node.device_time for node in nodes]
        row |= _times("CUDA", sum_of(launched, "device"), totals, device, calls)
    return row | {
        f"{allocator} Mem": sum(memory) if memory else None,
        f"Self {allocator} Mem": sum_of(selves, "allocated"),
        "# of Calls": calls,
    }


def _work(chains: list[Chain], counted: bool) -> dict[str, Any]:
    """Return the work of the calls that answer for it themselves, and where all are counted."""
    if not counted:
        return dict.fromkeys(
            ("flops", "bytes", "flops_per_second", "bytes_per_second", "counted at")
        )
    places = [counted_at(chain) for chain in chains]
    answering = [chain for chain, place in zip(chains, places, strict=True) if place == ITSELF]
    own = [one for chain in answering for one in chain]
    if any(node.row.unknown for node in own):
        places.append(NOWHERE)
    flops = sum_of(own, "flops")
    moved = None if any(node.row.unsaid for node in own) else sum_of(own, "bytes")
    # What an operator calls is its way of doing its work.
    times = [chain[0].time for chain in answering]
    time = None if None in times else sum(time for time in times if time is not None)
    return {
        "flops": flops,
        "bytes": moved,
        "flops_per_second": flops / time if flops is not None and time else None,
        "bytes_per_second": moved / time if moved is not None and time else None,
        "counted at": ", ".join(dict.fromkeys(places)),
    }


def _times(
    clock: str, own_time: float | None, totals: list[float | None], whole: float, calls: int
) -> dict[str, float | None]:
    known = [time for time in totals if time is not None]
    total = sum(known) if known else None
    return {
        f"Self {clock} %": _percent(own_time, whole),
        f"Self {clock}": own_time,
        f"{clock} total %": _percent(total, whole),
        f"{clock} total": total,
        f"{clock} time avg": total / calls if total is not None and calls else None,
    }


def _kernels(node: Node) -> list[Node]:
    return [child for child in node.children if child.kind == "kernel"]


def _percent(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else 100 * part / whole
