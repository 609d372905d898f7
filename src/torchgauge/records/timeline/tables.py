"""The tree's nodes as flat tables: layers, operators, kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgauge.errors import InputError
from torchgauge.records.timeline.node import Node, base_name, sum_of
from torchgauge.records.timeline.quantity import PYTHON_COLUMNS, single_layers
from torchgauge.records.timeline.table import Table
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Kernel, quantile
from torchgauge.records.work.size import ITSELF, NOWHERE, counted_at

# An operator's node, then those of the overloads that it dispatched to.
Chain = list[Node]


def table(tree: Tree | None, kind: str, **options: Any) -> Table:
    """Return the nodes of one kind: "layers", "operators" or "kernels".

    Raises InputError `no-tree` where there is none, `table-unknown`.
    """
    makers: dict[str, Callable[..., Table]] = {
        "layers": layers,
        "operators": operators,
        "kernels": kernels,
    }
    if kind not in makers:
        raise InputError(
            f"There is no table '{kind}'.",
            id="table-unknown",
            remedy=f"Ask for one of {', '.join(makers)}, categories.",
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
    nodes = single_layers(tree.root)
    return Table({column.key: list(map(column.get, nodes)) for column in PYTHON_COLUMNS})


def operators(tree: Tree, *, by_shape: bool = False, max_rows: int | None = None) -> Table:
    """Return one row per operator, most time of its own first, under torch.profiler's names.

    Times in seconds of one step, columns named % in percent of it; `by_shape` tells the same
    operator on other shapes apart; `max_rows` limits the rows. `CPU total` holds what an operator
    calls; the columns of a device are there where one worked. As in torch's table, overloads are
    one operator, and one that calls nothing but itself under another overload ran once. `flops` and
    `bytes` are its own, and per second of the time with what it calls (at least so many where some
    calls are `nowhere`); `counted at` says where its work is counted (see `counted_at`; each place
    where its calls differ), None where nothing was.
    """
    groups: dict[tuple[str, str], list[Chain]] = {}
    for node in tree.root.walk():
        if node.row.kind == "operator" and not repeats_parent(node):
            shape = node.row.shapes if by_shape else ""
            groups.setdefault((base_name(node.name), shape), []).append(_chain(node))
    root = tree.root
    step_times = root.host_time or 0.0, root.device_time
    counted = root.flops is not None
    timed = [
        (_operator(name, shape, chains, step_times, tree.allocator), chains)
        for (name, shape), chains in groups.items()
    ]
    order = "Self CPU" if step_times[1] is None else "Self CUDA"
    timed.sort(key=lambda pair: -(pair[0][order] or 0.0))
    rows = [row | _work(chains, counted) for row, chains in timed[:max_rows]]
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    if not by_shape:
        columns.pop("Input Shapes", None)
    return Table(columns)


def repeats_parent(node: Node) -> bool:
    """Whether it is the only child of an operator of the same name: another overload.

    A compiled kernel has its operator's name too, and is no operator.
    """
    above = node.parent
    return (
        node.row.kind == "operator"
        and above is not None
        and len(above.children) == 1
        and above.row.kind == "operator"
        and above.row.calls == node.row.calls
        and base_name(above.row.name) == base_name(node.row.name)
    )


def _chain(node: Node) -> Chain:
    """Return the node with the overloads that it dispatched to."""
    chain = [node]
    while len(node.children) == 1 and repeats_parent(node.children[0]):
        (node,) = node.children
        chain.append(node)
    return chain


def _operator(
    name: str,
    shape: str,
    chains: list[Chain],
    step_times: tuple[float, float | None],
    allocator: str,
) -> dict[str, Any]:
    nodes = [chain[0] for chain in chains]
    selves = [node for chain in chains for node in chain]
    calls = sum(node.calls for node in nodes)
    memory = [size for node in nodes if (size := node.memory) is not None]
    host, device = step_times
    row = {
        "Name": name,
        "Input Shapes": shape,
        **_times("CPU", sum_of(selves, "host"), [n.host_time for n in nodes], host, calls),
    }
    if device is not None:
        launched = [member for node in selves for member in (node, *_kernels(node))]
        totals = [node.device_time for node in nodes]
        row |= _times("CUDA", sum_of(launched, "device"), totals, device, calls)
    return row | {
        f"{allocator} Mem": sum(memory) if memory else None,
        f"Self {allocator} Mem": sum_of(selves, "allocated"),
        "# of Calls": calls,
    }


def _work(chains: list[Chain], counted: bool) -> dict[str, Any]:
    """Return the work of the calls counted at themselves, and where each call is counted."""
    if not counted:
        return dict.fromkeys(
            ("flops", "bytes", "flops_per_second", "bytes_per_second", "counted at")
        )
    places = [counted_at(chain) for chain in chains]
    answering = [chain for chain, place in zip(chains, places, strict=True) if place == ITSELF]
    own_nodes = [node for chain in answering for node in chain]
    if any(node.row.unknown for node in own_nodes):
        places.append(NOWHERE)
    flops = sum_of(own_nodes, "flops")
    moved = (
        None
        if any(node.row.calls_without_bytes for node in own_nodes)
        else sum_of(own_nodes, "bytes")
    )
    # The operators that an operator calls are part of its work.
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
    clock: str, own_time: float | None, totals: list[float | None], step_time: float, calls: int
) -> dict[str, float | None]:
    known_times = [time for time in totals if time is not None]
    total = sum(known_times) if known_times else None
    return {
        f"Self {clock} %": _percent(own_time, step_time),
        f"Self {clock}": own_time,
        f"{clock} total %": _percent(total, step_time),
        f"{clock} total": total,
        f"{clock} time avg": total / calls if total is not None and calls else None,
    }


def _kernels(node: Node) -> list[Node]:
    return [child for child in node.children if child.kind == "kernel"]


def _percent(part: float | None, step_time: float) -> float | None:
    return None if part is None or not step_time else 100 * part / step_time


def kernels(tree: Tree) -> Table:
    """Return one row per kernel and launch configuration, most device time first.

    Times in seconds, of the tree's steps; `min`, `median`, `max` are those of single calls in all
    that was recorded. `share` is that of all device time. `layers` names the layer or bucket with
    most of the time, and how many others; `operator` the operator that launched it there.
    """
    groups: dict[tuple[Any, ...], list[tuple[Node, Kernel]]] = {}
    for node in tree.root.walk():
        kernel = node.row.kernel
        if kernel is not None:
            groups.setdefault(_configuration(node.name, kernel), []).append((node, kernel))
    device_time = tree.root.total("device") or 0
    rows = [_row(group, device_time) for group in groups.values()]
    rows.sort(key=lambda row: -row["device_time"])
    return Table({name: [row[name] for row in rows] for name in (rows[0] if rows else ())})


def _configuration(name: str, kernel: Kernel) -> tuple[Any, ...]:
    return (
        name,
        kernel.device,
        kernel.grid,
        kernel.block,
        kernel.registers,
        kernel.shared_memory,
        kernel.collective,
    )


def _row(group: list[tuple[Node, Kernel]], total_time: int) -> dict[str, Any]:
    group = sorted(group, key=lambda pair: -(pair[0].row.device or 0))
    nodes = [node for node, _ in group]
    kernel_records = [kernel for _, kernel in group]
    node, kernel = group[0]
    time = sum(node.row.device or 0 for node in nodes)
    calls = sum(node.calls for node in nodes)
    durations = sorted(duration for kernel in kernel_records for duration in kernel.durations)
    sizes = [kernel.bytes for kernel in kernel_records if kernel.bytes is not None]
    size = sum(sizes) if len(sizes) == len(kernel_records) else None
    recorded_time = sum(durations)
    places = dict.fromkeys(map(_place, nodes))
    return {
        "name": node.name,
        "calls": calls,
        "device_time": time * 1e-9,
        "share": time / total_time if total_time else None,
        "avg": time * 1e-9 / calls if calls else None,
        "min": durations[0] * 1e-9,
        "median": quantile(durations, 0.5) * 1e-9,
        "max": durations[-1] * 1e-9,
        "grid": kernel.grid,
        "block": kernel.block,
        "registers": kernel.registers,
        "shared_memory": kernel.shared_memory,
        "occupancy": kernel.occupancy,
        "limiter": kernel.limiter,
        "bandwidth": size / recorded_time * 1e9 if size is not None and recorded_time else None,
        "layers": _several(list(places)),
        "operator": _calling_operator(node),
    }


def _place(node: Node) -> str:
    """Return the path of the layer, or the bucket's name."""
    above: Node | None = node
    while above is not None and above.kind not in ("layer", "model", "bucket"):
        above = above.parent
    if above is None:
        return ""
    return above.row.path if above.kind == "layer" else above.name


def _several(places: list[str]) -> str:
    further = len(places) - 1
    return places[0] + (f" and {further} more" if further else "")


def _calling_operator(node: Node) -> str:
    """Return the name of the operator that launched it, empty where none did."""
    above = node.parent
    return above.name if above is not None and above.kind == "operator" else ""
