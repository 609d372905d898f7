"""The work of a count as rows: by layer, operator or type of layer, numbers exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchgauge.records.exported import Csv
from torchgauge.records.work.cost import known_part
from torchgauge.records.work.size import Count
from torchgauge.report.export.stacks import needed_tree
from torchgauge.report.tables.work_table import PHASES, By, entries


def table(count: Count, name: Csv) -> tuple[Iterable[str], Iterable[Iterable[object]]]:
    """Return names and rows: the figures as one row, or layers or operators."""
    if name == "figures":
        row = count.summary()
        return row, [row.values()]
    if name in ("kernels", "categories"):
        needed_tree(count)
    return rows(count, "layer" if name == "layers" else "operator")


def rows(
    count: Count, by: By = "layer", depth: int | None = None
) -> tuple[list[str], Iterator[list[object]]]:
    """Return the header and a row for each layer, operator or type; `share` refers to all FLOPs.

    Where `unknown_calls` is not 0 amounts are lower bounds, and empty where nothing is known.
    """
    names = (
        "level,path,name,kind,parameters,calls,macs,flops,matmul_flops,causal_matmul_flops,"
        "vector_flops,integer_ops,bytes,intensity_flop_per_byte,share,unknown_calls,estimated"
    )
    total_flops = count.cost.total(PHASES).flops
    lines: Iterator[list[object]] = (
        [entry.level, entry.path, entry.name, entry.kind, entry.parameters, work.calls,
         *(known_part(amount, at_least=work.at_least) for amount in (
             work.macs, work.flops, work.matmul_flops, work.causal_matmul_flops,
             work.vector_flops, work.integer_ops, work.bytes)),
         None if work.at_least else work.intensity,
         work.flops / total_flops if total_flops else None,
         work.unknown_calls, work.estimated]
        for entry in entries(count.cost, by, depth) for work in [entry.work]
    )  # fmt: skip
    return names.split(","), lines
