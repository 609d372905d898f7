"""All findings of a record, checked against each other, what is worth most first."""

from __future__ import annotations

import msgspec

from torchgauge.analyze.findings.communication import (
    communication_bound,
    compute_stream,
    exposed_communication,
    last_collective,
    late_rank,
    slow_bandwidth,
    slow_collective,
    small_collectives,
    straggler,
    throttled_rank,
    uneven_exchange,
    uneven_work,
)
from torchgauge.analyze.findings.compilation import compilation_in_loop
from torchgauge.analyze.findings.device import (
    exposed_copies,
    idle_device,
    idle_host,
    launch_bound,
)
from torchgauge.analyze.findings.generation import (
    attention_growth,
    beam_cost,
    between_forwards,
    beyond_window,
    decode_bound,
    prompt_recomputed,
    slow_assistant,
    slow_first_call,
    small_batch,
    unused_cache,
)
from torchgauge.analyze.findings.host import (
    device_allocation,
    first_launches,
    garbage_collection,
    slow_tail,
    small_operators,
    synchronisation,
)
from torchgauge.analyze.findings.input import input_pipeline
from torchgauge.analyze.findings.kernels import (
    casts,
    contiguous_copies,
    eager_attention,
    emulated_half,
    faster_half,
    fills,
    float64_products,
    fp32_products,
    layout_conversions,
    low_occupancy,
    math_attention,
    pageable_copies,
    partial_waves,
    single_row_products,
    small_copies,
    small_grids,
    unaligned_products,
    unfused_elementwise,
)
from torchgauge.analyze.findings.layers import (
    composed_layers,
    dense_embedding_gradient,
    farthest_from_roof,
    hottest_operator,
    out_of_proportion,
    outside_layers,
    recomputation,
    training_mode,
    widest_layer,
)
from torchgauge.analyze.findings.memory import (
    allocation_churn,
    kept_activations,
    largest_part,
    peak_layer,
    training_state,
    unused_reserve,
    zeroed_gradients,
)
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.recording import launched_before, missing_ranks
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule
from torchgauge.analyze.findings.serving import (
    client_limited,
    connection_setup,
    few_requests,
    first_resource,
    in_flight_limit,
    latency_growth,
    memory_growth,
    request_errors,
    saturated,
    server_pause,
    small_batches,
    stream_stalls,
)
from torchgauge.analyze.findings.training import optimizer_loop
from torchgauge.records.finding import Finding
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.trace import RankTrace, Trace

FILES = (
    straggler, late_rank, throttled_rank, uneven_work, uneven_exchange,
    slow_collective, slow_bandwidth, small_collectives, compute_stream, last_collective,
    communication_bound, exposed_communication,
    launch_bound, idle_host, idle_device, exposed_copies,
    input_pipeline, compilation_in_loop, optimizer_loop,
    garbage_collection, synchronisation, device_allocation, first_launches, small_operators,
    slow_tail,
    eager_attention, math_attention, unfused_elementwise, casts, contiguous_copies,
    layout_conversions, fills, fp32_products, float64_products, emulated_half, faster_half,
    unaligned_products, single_row_products, small_grids, partial_waves, low_occupancy,
    pageable_copies, small_copies,
    training_mode, composed_layers, dense_embedding_gradient, recomputation,
    hottest_operator, widest_layer, out_of_proportion, farthest_from_roof, outside_layers,
    allocation_churn, kept_activations, training_state, peak_layer, unused_reserve,
    zeroed_gradients, largest_part,
    prompt_recomputed, slow_assistant, beam_cost, decode_bound, attention_growth,
    between_forwards, small_batch, unused_cache, beyond_window, slow_first_call,
    client_limited, request_errors, saturated, server_pause, in_flight_limit, connection_setup,
    stream_stalls,
    memory_growth, first_resource, latency_growth, small_batches, few_requests,
    launched_before, missing_ranks,
)  # fmt: skip
RULES: dict[str, Rule] = {file.RULE.id: file.RULE for file in FILES}


def findings(
    record: Profile | Loop | RankTrace | Trace | Generation | Serving,
) -> tuple[Finding, ...]:
    """Return the findings of a record, what is worth most first.

    Of a trace with several ranks those about the job alone; each rank has its own.
    """
    evidence = Evidence.from_record(record)
    applying = [
        _documented(finding, rule, evidence)
        for rule in RULES.values()
        for finding in rule.find(evidence)
        if _matters(finding, evidence)
    ]
    return _once_a_node(sorted(_unexplained(applying), key=_order))


def _matters(finding: Finding, evidence: Evidence) -> bool:
    """Whether it is about enough of a step; of a trace each rule decides what is enough."""
    of_trace = evidence.rank is not None or evidence.job is not None
    return of_trace or finding.time is None or finding.time >= NOTICEABLE * evidence.time


def _documented(finding: Finding, rule: Rule, evidence: Evidence) -> Finding:
    """Return a finding with its rule's source, and with a remedy for the program's framework."""
    by_jax = evidence.rank is not None and evidence.rank.contents.recorder == "JAX"
    remedy = rule.jax_remedy if by_jax and rule.jax_remedy else finding.remedy
    return msgspec.structs.replace(finding, source=rule.source, remedy=remedy)


def _unexplained(applying: list[Finding]) -> list[Finding]:
    """Return the findings without the general ones whose time a particular one explains.

    A general one that is explained in part is worth only the rest.
    """
    explained: dict[str, float] = {}
    for finding in applying:
        for general in RULES[finding.id].explains:
            explained[general] = explained.get(general, 0.0) + (finding.time or 0.0)
    remaining = []
    for finding in applying:
        time = explained.get(finding.id, 0.0)
        if finding.id not in explained:
            remaining.append(finding)
        elif finding.time is not None and time < finding.time / 2:
            worth = None if finding.worth is None else max(finding.worth - time, 0.0)
            remaining.append(msgspec.structs.replace(finding, worth=worth))
    return remaining


def _order(finding: Finding) -> tuple[float, float]:
    return -(finding.worth or 0.0), -(finding.time or 0.0)


def _once_a_node(ordered: list[Finding]) -> tuple[Finding, ...]:
    first_by_node: dict[int, Finding] = {}
    for finding in ordered:
        if finding.node is not None:
            first_by_node.setdefault(finding.node, finding)
    return tuple(
        finding
        for finding in ordered
        if finding.node is None or first_by_node[finding.node] is finding
    )
