import pytest
import torch
from tests.support.vector_calls import aten, vector_of

from torchgauge.formulas.registry import as_work
from torchgauge.measure.work.operators import operator

SIZES = (10, 6)


def lists(count):
    return [[torch.ones(size) for size in SIZES] for _ in range(count)]


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.vector = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        self.vector += as_work(operator(function).work(args, kwargs or {}, outputs)).vector
        return outputs


def steps(kind, **options):
    """The vector work of the third step, with and without fusing."""
    counts = {}
    for implementation in ("fused", "foreach"):
        parameters = [torch.nn.Parameter(torch.ones(size)) for size in SIZES]
        optimizer = kind(parameters, lr=0.1, **options, **{implementation: True})
        for _ in range(3):
            for one in parameters:
                one.grad = torch.ones_like(one)
            with Counting() as counting:
                optimizer.step()
        counts[implementation] = counting.vector
    return counts


@pytest.mark.parametrize(
    ("kind", "options", "each"),
    [
        (torch.optim.Adam, {}, 7),
        (torch.optim.Adam, {"weight_decay": 0.1}, 8),
        (torch.optim.Adam, {"amsgrad": True}, 8),
        (torch.optim.AdamW, {"weight_decay": 0.1}, 8),
        (torch.optim.SGD, {}, 1),
        (torch.optim.SGD, {"momentum": 0.9}, 3),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, 5),
        (torch.optim.Adagrad, {}, 5),
    ],
)
def test_a_fused_step_counts_the_operators_of_the_unfused(kind, options, each):
    counts = steps(kind, **options)
    assert counts["foreach"] == pytest.approx(sum(SIZES) * each, abs=2 * len(SIZES))
    # Step counters are one element for each parameter tensor, and no work of the fused operator.
    assert counts["fused"] - sum(SIZES) * each in (0, len(SIZES))


def test_lists_are_the_sum_of_their_base():
    parameters, gradients = lists(2)
    assert vector_of(aten._foreach_add.List, parameters, gradients) == 16
    assert vector_of(aten._foreach_mul_.Scalar, parameters, 2.0) == 16
    assert vector_of(aten._foreach_sqrt.default, parameters) == 16
    assert vector_of(aten._foreach_norm.Scalar, parameters) == 16
    assert vector_of(aten._foreach_max.default, parameters) == 16
    assert vector_of(aten._foreach_copy_.default, parameters, gradients) == 0
    assert vector_of(aten._foreach_addcdiv_.Scalar, parameters, gradients, gradients) == 16


def test_unscaling_gradients_checks_and_multiplies():
    (gradients,) = lists(1)
    call = aten._amp_foreach_non_finite_check_and_unscale_.default
    assert vector_of(call, gradients, torch.zeros(1), torch.ones(1)) == 32
