"""Service times of one worker, from any record that has them."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from torchgauge.analyze.capacity.answered_times import inferred_times
from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.server_model import known_columns, met_idle
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.analyze.generation.predictions import cache_bytes
from torchgauge.analyze.generation.stage_points import fitted_cells
from torchgauge.analyze.serving.request_times import with_control
from torchgauge.errors import InputError
from torchgauge.records.generation.cell import StageFit
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.record import Record
from torchgauge.records.serving.capacity_plan import BatchTimes, ServiceTimes, TokenTimes
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Requests
from torchgauge.records.serving.serving import Serving
from torchgauge.records.sweep import Cell, CellSettings, Sweep

NORMAL = 1.96


def service_times(record: Record, row: str = "") -> ServiceTimes:
    """Return the service times that a record has.

    Of a sweep those of the row of batches whose settings `row` names, of several the one with the
    highest throughput; of a profile a request is a call with its inputs.

    Raises InputError `no-service-times`, `row-unknown`, `row-missing`.
    """
    if isinstance(record, Sweep):
        return _of_sweep(record, row)
    if row:
        raise InputError(
            f"A {type(record).__name__.lower()} has no rows of settings.",
            id="row-unknown",
            remedy="Leave --row out.",
        )
    if isinstance(record, Serving):
        return next(ways_to_batch(record))
    if isinstance(record, Generation):
        return _of_generation(record)
    if isinstance(record, Profile) and record.latency is not None:
        batch = BatchTimes(batch=1, seconds=record.latency.samples)
        return ServiceTimes(source="profile", batches=(batch,), max_batch=1)
    raise _none(f"A {type(record).__name__.lower()} without latencies has no service times.")


def _none(message: str) -> InputError:
    return InputError(
        message,
        id="no-service-times",
        remedy="Measure them by batch, or give a record of a load: torchgauge sweep TARGET "
        "--batch 1,2,4,8 -o sweep.json",
    )


def _of_serving(serving: Serving) -> ServiceTimes:
    times, served = serving.service_times, serving.served_by
    if times is None or not times.batches:
        batches, order = of_requests(level.requests for level in serving.levels)
        times = ServiceTimes(
            source="call" if served.kind == "call" else "server", batches=batches, order=order,
            max_batch=served.max_batch, max_delay=served.max_delay, workers=served.workers or 1,
        )  # fmt: skip
    largest = times.max_batch or max((part.batch for part in times.batches), default=1)
    overhead = times.overhead or _overhead(serving, largest, times.max_delay)
    return replace(times, max_batch=largest, overhead=overhead)


def ways_to_batch(
    serving: Serving, max_batch: int | None = None, max_delay: float | None = None
) -> Iterator[ServiceTimes]:
    """Yield the service times of a record with each way in which its server may batch.

    Of a server that tells none they are inferred. An endpoint does not tell whether its delay
    begins when a worker collects. How long that is was said with its load or with the plan; else it
    is as long as requests waited that met the server idle, or these spent that time elsewhere.
    """
    times = _of_serving(serving)
    known_delay = max_delay if times.max_delay is None else times.max_delay
    if not times.batches:
        yield from inferred_times(serving, known_delay)
        return
    largest = max(times.max_batch or 1, max_batch or 1)
    if serving.served_by.kind != "endpoint" or times.batches[-1].batch == 1:
        yield times
        return
    for delay in (0.0, times.overhead) if known_delay is None else (known_delay,):
        overhead = _overhead(serving, largest, delay)
        for collects in (False, True) if delay else (False,):
            yield replace(
                times, max_batch=largest, max_delay=delay, collects=collects, overhead=overhead
            )


def _overhead(serving: Serving, max_batch: int | None, max_delay: float | None) -> float:
    """Return the median seconds of requests outside of their batch, of those that did not wait.

    These were sent while no other was in flight. They waited for the batch's delay alone, and for
    none where batches have one request.
    """
    delay = (max_delay or 0.0) if (max_batch or 1) > 1 else 0.0
    outside: list[float] = []
    for level in serving.levels:
        sent, last, took = known_columns(level.requests, "sent", "last", "service")
        outside += (last - sent - took)[met_idle(sent, last)].tolist()
    return max(0.0, statistics.median(outside) - delay) if outside else 0.0


def of_requests(levels: Iterable[Requests]) -> tuple[tuple[BatchTimes, ...], tuple[int, ...]]:
    """Return the batches that answers name, by size, and their sizes, in the order of the answers.

    Where a server names none, each request is one of its own.

    Requests of one batch have the same seconds: of alike ones, each n of a batch of n are a batch,
    and those that are left over, since the others were not answered.
    """
    seconds: dict[int, list[float]] = {}
    order: list[int] = []
    for requests in levels:
        rows = sorted(
            (last or 0.0, 1 if size is None else size, took)
            for size, took, last in itertools.zip_longest(
                requests.batch, requests.service, requests.last
            )
            if size != 0 and took is not None
        )
        answered: Counter[tuple[int, float]] = Counter()  # of the batch that is being answered
        for _, size, took in rows:
            if not answered[size, took]:
                seconds.setdefault(size, []).append(took)
                order.append(size)
            answered[size, took] = (answered[size, took] + 1) % size
    batches = tuple(
        BatchTimes(batch=size, seconds=tuple(values)) for size, values in sorted(seconds.items())
    )
    return batches, tuple(order)


def _of_sweep(sweep: Sweep, row: str) -> ServiceTimes:
    cells = cells_of_row(sweep, row)
    batches = tuple(
        BatchTimes(batch=cell.batch or 1, seconds=cell.latency.samples)
        for cell in cells
        if cell.latency is not None
    )
    series = cells[0].settings.series
    settings = "" if series == CellSettings() else series.label
    largest = batches[-1].batch
    return ServiceTimes(source="sweep", batches=batches, settings=settings, max_batch=largest)


def cells_of_row(sweep: Sweep, row: str = "") -> tuple[Cell, ...]:
    """Return the cells with these settings, by batch; of several rows those of most throughput.

    Raises InputError `no-service-times`, `row-unknown`, `row-missing`.
    """
    rows: dict[CellSettings, dict[int, Cell]] = {}
    for cell in sweep.cells:
        if cell.done and cell.latency is not None:
            rows.setdefault(cell.settings.series, {})[cell.batch or 1] = cell
    if not rows:
        raise _none("No cell of this sweep has a latency.")

    def throughput(cells: dict[int, Cell]) -> float:
        return max(size / cell.latency.mean for size, cell in cells.items() if cell.latency)

    chosen = max(_named(rows, row).values(), key=throughput)
    return tuple(cell for _, cell in sorted(chosen.items()))


def _named(
    rows: dict[CellSettings, dict[int, Cell]], row: str
) -> dict[CellSettings, dict[int, Cell]]:
    """Return the rows that have these settings, which are of the same work and device."""
    parts = {part.strip() for part in row.split(",")} - {""}
    named = {
        series: cells for series, cells in rows.items() if parts <= set(series.label.split(", "))
    }
    labels = ", ".join(f"'{series.label}'" for series in named or rows)
    if not named:
        raise InputError(
            f"The sweep has no row '{row}'.", id="row-unknown", remedy=f"It has {labels}."
        )
    if len({(series.seq_len, series.device) for series in named}) > 1:
        raise InputError(
            "The rows of this sweep differ in what a request is, or where it runs.",
            id="row-missing",
            cause="No throughput says which of them is planned for.",
            remedy=f"Name one by --row, of {labels}.",
        )
    return named


def _of_generation(generation: Generation) -> ServiceTimes:
    kinds = list(dict.fromkeys(fit.cache_kind for fit in generation.fits))
    for kind in kinds:
        prefill, decode = generation.fit("prefill", kind), generation.fit("decode", kind)
        if kind != "none" and prefill is not None and decode is not None:
            break
    else:
        raise _none("This generation has no fit of prefill and decode steps with a cache.")
    cells = fitted_cells(generation.cells, kind)
    largest = generation.largest_batch
    memory = None if largest is None else max(0, largest.capacity - largest.fixed)
    position = cache_bytes(cells, 1, 1)
    if largest is not None and largest.context:
        # What a sequence takes beside its cache grows with its positions as well.
        position = max(position or 0, -(-largest.per_sequence // largest.context))
    overheads = [
        cell.ttft.value - cell.prefill.value
        for cell in cells
        if cell.ttft is not None and cell.prefill is not None
    ]
    return ServiceTimes(
        source="generation",
        tokens=(
            _stage("prefill", prefill),
            _stage("decode", decode, cache=position, memory=memory),
        ),
        overhead=max(0.0, statistics.median(overheads)) if overheads else 0.0,
        settings=f"{kind} cache",
        shapes=tuple(dict.fromkeys((cell.prompt, cell.new_tokens) for cell in cells))[:1],
        max_batch=max(cell.batch * cell.beams for cell in cells),
        how="estimated",
    )


def _stage(
    stage: str, fit: StageFit, *, cache: float | None = None, memory: int | None = None
) -> TokenTimes:
    # A few cells say less of the scatter than many: their interval is that much wider.
    wider = 0.0 if fit.quantile is None else fit.quantile / NORMAL
    return TokenTimes(
        stage="prefill" if stage == "prefill" else "decode",
        fixed=fit.fixed.value,
        per_token=fit.per_token.value,
        per_pair=fit.per_context.value,
        noise=fit.spread * wider,
        cache=cache,
        memory=memory,
        window=fit.window,
    )


def with_controls(serving: Serving) -> Serving:
    """Add to each open-loop level its highest percentile, by a simulation of the same schedule.

    Only where the server tells how long its batches take; too few of them draw no service times.
    They are of levels with a steady state: an overloaded server computes otherwise.
    """
    batches, order = of_requests(level.requests for level in serving.levels if _is_steady(level))
    if serving.service_times is None or not batches:
        return serving
    times = replace(service_times(serving), batches=batches, order=order)
    model = BatchModel.from_times(times)
    if not (model.uncertain and min(model.means) > 0):
        return serving
    workers = Workers.of_times(times)

    def simulated(arrivals: Floats, seed: int) -> Floats:
        return model.run(arrivals, workers, seed).latency

    levels = [
        with_control(level, simulated) if _is_steady(level) else level for level in serving.levels
    ]
    return replace(serving, levels=tuple(levels))


def _is_steady(level: Level) -> bool:
    is_limited = level.client is not None and level.client.limited
    return not is_limited and level.saturation is not None and level.saturation.saturated is False
