"""Which runs a history need not keep."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.records.run import Run


def superfluous(
    runs: Sequence[Run], *, keep_last: int | None = None, before: str | None = None
) -> list[Run]:
    """Return the runs that may go: not among the newest `keep_last` of their kind, and older.

    Kinds are target, branch, workload and machine; the newest run of each stays always. `before`
    is a time as `Run.created`. `runs` are oldest first; with neither limit nothing may go.
    """
    if keep_last is None and before is None:
        return []
    later: dict[tuple[str, ...], int] = {}
    removable = []
    for run in reversed(runs):
        kind = (run.target, run.branch, run.workload, run.machine)
        newer = later.get(kind, 0)
        later[kind] = newer + 1
        if newer >= max(keep_last or 1, 1) and (before is None or run.created < before):
            removable.append(run)
    return removable[::-1]
