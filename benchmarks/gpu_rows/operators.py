"""A bound for each of 30 operators: the least time under the measured roofs, and what bounds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_rows.line import Line, judged

if TYPE_CHECKING:
    import torch

    from gpu_rows.machine import Machine

# A kernel below its bound has a bound that is wrong; caches between calls excuse a little.
MOST = 1.1
KINDS = ("compute", "memory", "overhead")


class Bounded(NamedTuple):
    """One operator: its bound and its time in seconds, what bounds it, and what was expected."""

    name: str
    bound: float
    time: float
    kind: str | None
    expected: str

    @property
    def efficiency(self) -> float:
        """The bound as a share of the time."""
        return self.bound / self.time


def cases(device: str, size: int) -> list[tuple[str, str, Callable[..., Any], tuple[Any, ...]]]:
    """Return (name, what is expected to bound it, call, arguments) of 30 operators.

    Matrices are `size` × `size`; streams hold as many elements.
    """
    import torch
    from torch.nn import functional

    half = torch.float16 if device.startswith("cuda") else torch.bfloat16

    def tensor(*shape: int, dtype: torch.dtype = half) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=torch.float32).to(dtype)

    a, b, x = tensor(size, size), tensor(size, size), tensor(size, size)
    single = tensor(size, size, dtype=torch.float32)
    ones = torch.ones(size, device=device, dtype=half)
    batch = tensor(16, size // 4, size // 4)
    heads = tensor(4, 16, size // 4, 64)
    image, kernel = tensor(16, 256, size // 32, size // 32), tensor(256, 256, 3, 3)
    rows = torch.randint(size, (size,), device=device)
    small = tensor(8)
    return [
        ("mm fp16", "compute", torch.mm, (a, b)),
        ("mm fp32", "compute", torch.mm, (single, single)),
        ("addmm", "compute", torch.addmm, (ones, a, b)),
        ("linear", "compute", functional.linear, (a, b)),
        ("bmm", "compute", torch.bmm, (batch, batch)),
        ("matmul, one row", "memory", torch.matmul, (x[:1], b)),
        ("conv2d 3×3", "compute", functional.conv2d, (image, kernel, None, 1, 1)),
        ("attention", "compute", functional.scaled_dot_product_attention, (heads, heads, heads)),
        ("add", "memory", torch.add, (a, b)),
        ("mul", "memory", torch.mul, (a, b)),
        ("copy", "memory", torch.clone, (x,)),
        ("cast", "memory", lambda t: t.to(half), (single,)),
        ("fill", "memory", torch.Tensor.fill_, (x.clone(), 1.0)),
        ("cat", "memory", lambda s, t: torch.cat((s, t)), (a, b)),
        ("transposed copy", "memory", lambda t: t.t().contiguous(), (x,)),
        ("relu", "memory", torch.relu, (x,)),
        ("gelu", "memory", functional.gelu, (x,)),
        ("silu", "memory", functional.silu, (x,)),
        ("exp", "memory", torch.exp, (x,)),
        ("dropout", "memory", functional.dropout, (x, 0.5, True)),
        ("softmax", "memory", torch.softmax, (x, -1)),
        ("layer_norm", "memory", functional.layer_norm, (x, (size,), ones, ones)),
        ("rms_norm", "memory", functional.rms_norm, (x, (size,), ones)),
        ("batch_norm", "memory",
         lambda t: functional.batch_norm(t, None, None, None, None, True), (image,)),
        ("sum", "memory", torch.sum, (x,)),
        ("max", "memory", torch.amax, (x, -1)),
        ("embedding", "memory", functional.embedding, (rows, x)),
        ("index_select", "memory", torch.index_select, (x, 0, rows)),
        ("max_pool2d", "memory", functional.max_pool2d, (image, 2)),
        ("add of 8 elements", "overhead", torch.add, (small, small)),
    ]  # fmt: skip


def lines(machine: Machine) -> Iterator[Line]:
    """Yield a line per operator, and one for all of them."""
    import torch

    import torchgauge as tg
    from torchgauge.analyze.work.bottleneck import bottleneck
    from torchgauge.analyze.work.lower_bound import Fp32, roofline
    from torchgauge.device.roofs.roofs import known_roofs, quick
    from torchgauge.device.settings import switches

    limits = known_roofs(machine.device) or quick(machine.device)
    fp32: Fp32 = switches()
    found = []
    for name, expected, call, arguments in cases(machine.device, 64 if machine.tiny else 8192):
        with torch.inference_mode():
            cost = tg.count_cost(call, arguments)
            latency = tg.measure_latency(
                call,
                arguments,
                device=machine.device,
                iterations=machine.few(20),
                processes=1,
                progress=False,
            )
        near = roofline(cost, latency, limits, fp32=fp32)
        kind = bottleneck(cost, latency, limits, fp32=fp32).kind
        # What the device did, without the host's part of the call.
        time = latency.device_time or latency.median
        found.append(Bounded(name, near.lower_bound, time, kind, expected))
        yield told(found[-1])
    yield together(found)


def told(one: Bounded) -> Line:
    """Return the line of one operator."""
    return judged(
        one.name,
        f"{one.bound * 1e6:,.2f} µs at least, {one.kind or 'unknown'}",
        f"{one.time * 1e6:,.2f} µs measured: {one.efficiency:.0%}",
        goal=f"{one.expected}, 0 < bound ≤ {MOST} × time",
        met=one.kind == one.expected and 0 < one.bound <= MOST * one.time,
        bound=one.bound,
        time=one.time,
        kind=one.kind,
        expected=one.expected,
    )


def together(found: list[Bounded]) -> Line:
    """Return the line of all operators."""
    known = sum(one.kind in KINDS for one in found)
    right = sum(one.kind == one.expected for one in found)
    return judged(
        "all operators",
        f"{known} of {len(found)} have a bound",
        f"{right} as expected of their shapes",
        goal="all as expected",
        met=right == len(found),
        known=known,
        right=right,
    )
