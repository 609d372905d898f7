"""The utilization that published runs state, from their models counted on the meta device."""

import pytest
import torch
from tests.support.published_steps import (
    MPT,
    MT_NLG,
    MT_NLG_BATCH,
    MT_NLG_SEQUENCE,
    MT_NLG_STEPS,
    PALM,
    Decoder,
)

import torchgauge as tg
from torchgauge.analyze.work.utilization import (
    ModelShape,
    StepContents,
    StepTime,
    products_of,
    utilization,
)
from torchgauge.records.work.utilization import PeakUsed

ROUNDING = 0.05  # points


def counted(sizes, sequence, *, checkpointed=False):
    """Count a training step of one sequence; return its products and the model's parameters."""
    with torch.device("meta"):
        model = Decoder(sizes, checkpointed=checkpointed)
        ids = torch.zeros(1, sequence, dtype=torch.long)
    cost = tg.count_cost(model, ids, backward=True)
    return products_of(cost), sum(parameter.numel() for parameter in model.parameters())


def used(run, products, parameters):
    """Return the utilization of one device's share of the run, a sequence at a time."""
    rate = run.tokens_per_second / run.devices
    return utilization(
        products,
        StepTime(run.sequence / rate),
        PeakUsed(device="", dtype="bfloat16", flops_per_second=run.peak, source="datasheet"),
        contents=StepContents(1, run.sequence),
        shape=ModelShape(parameters, run.sizes.layers, run.sizes.heads * run.sizes.head_size),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MPT)
def test_mpt_reaches_the_mfu_that_llm_foundry_prints(name):
    run = MPT[name]
    products, parameters = counted(run.sizes, run.sequence)
    assert parameters == run.parameters  # the model is theirs
    result = used(run, products, parameters)
    assert 100 * result.formula.mfu == pytest.approx(run.mfu, abs=ROUNDING)
    weights, attention = result.formula.parts
    assert attention.difference == 0
    # Theirs counts learned positions, norms and biases as products; ours has what is multiplied.
    sizes = run.sizes
    multiplied = 12 * sizes.layers * sizes.hidden**2 + sizes.vocabulary * sizes.hidden
    assert weights.difference == 6 * run.sequence * (parameters - multiplied)
    explained = (result.model_flops + weights.difference) / result.model_flops
    assert 100 * result.mfu * explained == pytest.approx(run.mfu, abs=ROUNDING)
    assert 0.98 * run.mfu < 100 * result.mfu < run.mfu


@pytest.mark.slow
def test_palm_reaches_its_mfu_by_its_counted_products():
    products, parameters = counted(PALM.sizes, PALM.sequence)
    assert parameters == pytest.approx(PALM.parameters, rel=1e-4)
    result = used(PALM, products, parameters)
    assert 100 * result.mfu == pytest.approx(PALM.mfu, abs=ROUNDING)
    assert 100 * result.formula.mfu == pytest.approx(PALM.mfu, abs=ROUNDING)
    without_attention = result.formula.parts[0].formula / result.formula.flops
    assert 100 * result.formula.mfu * without_attention == pytest.approx(45.7, abs=ROUNDING)


@pytest.mark.slow
def test_mt_nlg_reaches_its_rates_with_what_is_computed_again():
    products, _ = counted(MT_NLG, MT_NLG_SEQUENCE, checkpointed=True)
    assert products.executed > 1.3 * products.model
    for gpus, (seconds, teraflops) in MT_NLG_STEPS.items():
        rate = products.executed * MT_NLG_BATCH / (seconds * gpus)
        assert rate == pytest.approx(teraflops * 1e12, rel=0.01)
