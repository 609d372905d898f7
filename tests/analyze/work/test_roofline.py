import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.operator_costs import MIB, ROOFS, cost, latency, node, row

from torchgauge.analyze.work.lower_bound import roofline, row_bounds, summed
from torchgauge.records.work.roofline import BandwidthPoint, Roofline


def bound(*rows, **options):
    return summed(row_bounds(cost(*rows), ROOFS, **options))


def test_a_product_takes_its_operations_over_the_peak():
    # 1e9 FLOP at 100 GFLOP/s: 10 ms; 1 MB out of the cache at 100 GB/s: 10 µs.
    found = bound(row(matmul_flops=10**9, bytes=10**6))
    assert found == (pytest.approx(0.01), 0.0, False)


def test_a_stream_beyond_the_cache_takes_its_bytes_over_the_memorys_bandwidth():
    # 256 MiB at 10 GB/s.
    found = bound(row(operator="aten::add", vector_flops=MIB, bytes=256 * MIB))
    assert found == (0.0, pytest.approx(256 * MIB / 10e9), False)


def test_the_working_set_is_that_of_one_call():
    # 64 calls of 4 MiB each run out of the cache, one of 256 MiB does not.
    found = bound(row(operator="aten::add", calls=64, bytes=256 * MIB))
    assert found.memory == pytest.approx(256 * MIB / 100e9)


def test_operators_add_up_by_what_bounds_each():
    found = bound(
        row(matmul_flops=10**9, bytes=10**6),
        row(operator="aten::relu", vector_flops=10**6, bytes=8 * 10**6),
    )
    assert found == (pytest.approx(0.01), pytest.approx(8e6 / 100e9), False)
    assert found.time == pytest.approx(0.01008)


def test_between_two_points_bandwidth_follows_their_logarithms():
    # 64 MiB is halfway from 32 to 128 on a logarithmic scale: √(100·10) GB/s.
    assert ROOFS.bandwidth_at(64 * MIB) == pytest.approx(math.sqrt(1000) * 1e9)
    assert ROOFS.bandwidth_at(1) == 100e9
    assert ROOFS.bandwidth_at(2**40) == ROOFS.memory_bandwidth == 10e9


@pytest.mark.parametrize(
    ("dtype", "work", "seconds"),
    [
        ("bfloat16", {"matmul_flops": 2 * 10**9}, 0.01),
        ("quint8", {"integer_ops": 8 * 10**9}, 0.01),
        ("complex64", {"matmul_flops": 10**9}, 0.01),
    ],
)
def test_each_dtype_has_its_peak(dtype, work, seconds):
    assert bound(row(dtype=dtype, **work)).compute == pytest.approx(seconds)


def test_tf32_where_the_run_allowed_it():
    product = row(matmul_flops=4 * 10**9)
    convolution = row(operator="aten::convolution", matmul_flops=4 * 10**9)
    assert bound(product).time == pytest.approx(0.04)
    assert bound(product, fp32=("tf32", "ieee")).time == pytest.approx(0.01)
    # torch's own default rounds convolutions alone.
    assert bound(convolution).time == pytest.approx(0.01)
    assert bound(convolution, fp32=("tf32", "ieee")).time == pytest.approx(0.04)


def test_causal_attention_counts_its_triangle():
    whole = row(operator="aten::sdpa", matmul_flops=2 * 10**9, causal_matmul_flops=10**9)
    assert bound(whole).compute == pytest.approx(0.01)


def test_a_dtype_without_a_peak_makes_it_at_least():
    found = bound(row(dtype="float64", matmul_flops=10**9, bytes=10**6))
    assert found == (0.0, pytest.approx(1e-5), True)


def test_integer_bookkeeping_without_a_peak_does_not():
    # Fewer operations than bytes: memory bounds it whatever the peak.
    assert not bound(row(operator="aten::add", dtype="int64", integer_ops=10, bytes=240)).at_least


def test_an_unknown_operator_makes_it_at_least():
    assert bound(row(operator="my::op", bytes=100, has_formula=False)).at_least


def stack(layers, parameters):
    """A model of `layers` products by weights alone, each moving its weight."""
    below = (node(str(i), 0, parameters) for i in range(layers))
    nodes = (node("", -1, layers * parameters), *below)
    rows = (row(node=i + 1, bytes=4 * parameters) for i in range(layers))
    return cost(*rows, nodes=nodes)


def test_weights_that_the_cache_cannot_hold_come_from_memory():
    # 64 weights of 4 MiB are 256 MiB: all but 32 MiB come from memory in each call.
    found = summed(row_bounds(stack(64, MIB), ROOFS))
    assert found.memory == pytest.approx(224 * MIB / 10e9 + 32 * MIB / 100e9)


def test_weights_that_fit_the_cache_come_out_of_it():
    found = summed(row_bounds(stack(8, MIB), ROOFS))
    assert found.memory == pytest.approx(32 * MIB / 100e9)


def test_a_layer_called_often_reads_its_weights_from_memory_once():
    nodes = (node("", -1, 64 * MIB), node("a", 0, 32 * MIB), node("b", 0, 32 * MIB))
    twice = (*nodes, node("a", 0, 32 * MIB))
    rows = [row(node=i, bytes=128 * MIB) for i in (1, 2)]
    again = row(node=3, bytes=MIB)
    once = summed(row_bounds(cost(*rows, nodes=nodes), ROOFS))
    more = summed(row_bounds(cost(*rows, again, nodes=twice), ROOFS))
    assert more.memory - once.memory == pytest.approx(MIB / 100e9)


def test_a_roofline_by_hand():
    nodes = (node("", -1), node("a", 0), node("b", 0))
    made = cost(
        row(node=1, matmul_flops=10**9, bytes=10**6),
        row(node=2, operator="aten::relu", vector_flops=10**6, bytes=9 * 10**6),
        nodes=nodes,
    )
    found = roofline(made, latency(0.02), ROOFS, layer_times={1: 0.0125})
    assert found.intensity == pytest.approx(100.1)
    assert found.lower_bound == pytest.approx(0.01009)
    assert found.efficiency == pytest.approx(0.5045)
    assert found.flops_per_second == pytest.approx(1.001e9 / 0.02)
    assert found.bytes_per_second == pytest.approx(5e8)
    whole, a, b = found.layers
    assert (whole.bound, a.bound, b.bound) == ("compute", "compute", "memory")
    assert whole.lower_bound == pytest.approx(0.01009)
    assert a.efficiency == pytest.approx(0.8)
    assert a.flops_per_second == pytest.approx(8e10)
    assert b.intensity == pytest.approx(1 / 9)
    assert b.time is b.efficiency is b.flops_per_second is None


def test_without_a_time_there_is_a_bound_and_no_efficiency():
    found = roofline(cost(row(matmul_flops=10**9)), None, ROOFS)
    assert found.lower_bound == pytest.approx(0.01)
    assert found.time is found.efficiency is found.flops_per_second is None


def test_a_roofline_is_saved_and_read_back():
    found = roofline(cost(row(matmul_flops=10**9, bytes=10)), latency(0.02), ROOFS)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Roofline) == found


AMOUNT = st.integers(0, 10**12)


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT, st.integers(1, 1000))
def test_more_work_never_takes_less_time(flops, more_flops, moved, more_moved, calls):
    less = bound(row(calls=calls, matmul_flops=flops, bytes=moved))
    more = bound(row(calls=calls, matmul_flops=flops + more_flops, bytes=moved + more_moved))
    assert more.time >= less.time * (1 - 1e-9)


@given(st.integers(1, 2**34))
def test_bandwidth_stays_between_its_points(working_set):
    assert 10e9 <= ROOFS.bandwidth_at(working_set) <= 100e9


def test_one_point_is_a_curve():
    flat = msgspec.structs.replace(
        ROOFS, bandwidth=(BandwidthPoint(working_set=100, bytes_per_second=5.0),)
    )
    assert flat.bandwidth_at(1) == flat.bandwidth_at(1000) == 5.0
