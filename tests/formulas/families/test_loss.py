import torch
from tests.support.vector_calls import aten, estimate_of, vector_of

X = torch.ones(4, 10) / 2
NONE, MEAN = 0, 1


def test_a_loss_is_one_per_element_and_one_for_its_reduction():
    for loss in (aten.mse_loss, aten.smooth_l1_loss, aten.binary_cross_entropy):
        extra = (None,) if loss is aten.binary_cross_entropy else ()
        assert vector_of(loss.default, X, X, *extra, NONE) == 40
        assert vector_of(loss.default, X, X, *extra, MEAN) == 80
        assert vector_of(loss.default, X, X) == 80
    logits = aten.binary_cross_entropy_with_logits.default
    assert vector_of(logits, X, X, None, None, NONE) == 40
    assert vector_of(aten.mse_loss_backward.default, torch.tensor(1.0), X, X, MEAN) == 40


def test_nll_loss_touches_one_element_per_target():
    target = torch.zeros(4, dtype=torch.int64)
    assert vector_of(aten.nll_loss_forward.default, X, target, None, NONE, -100) == 4
    assert vector_of(aten.nll_loss_forward.default, X, target, None, MEAN, -100) == 8
    weighted = (X, target, torch.ones(10), MEAN, -100)
    assert vector_of(aten.nll_loss_forward.default, *weighted) == 12
    back = (torch.tensor(1.0), X, target, None, MEAN, -100, torch.tensor(4.0))
    assert vector_of(aten.nll_loss_backward.default, *back) == 4


def test_ctc_loss_is_ten_per_cell_of_its_lattice():
    log_probs = torch.ones(7, 2, 5).log_softmax(-1)
    targets = torch.ones(2, 3, dtype=torch.int64)
    # T = 7, N = 2, 2·3 + 1 states.
    assert estimate_of(aten._ctc_loss.default, log_probs, targets, [7, 7], [3, 3]) == 7 * 2 * 7 * 10


def test_margin_losses():
    target = torch.zeros(4, dtype=torch.int64)
    assert vector_of(aten.multi_margin_loss.default, X, target) == 80
    several = torch.full((4, 10), -1)
    # Ten classes against at most ten targets, in each of four rows.
    assert estimate_of(aten.multilabel_margin_loss_forward.default, X, several, MEAN) == 400


def test_ctc_backward_adds_the_gradient():
    log_probs = torch.ones(7, 2, 5).log_softmax(-1)
    targets = torch.ones(2, 3, dtype=torch.int64)
    lengths = ([7, 7], [3, 3])
    loss, alpha = aten._ctc_loss(log_probs, targets, *lengths)
    call = (torch.ones(2), log_probs, targets, *lengths, loss, alpha, 0)
    expected = 7 * 2 * 7 * 10 + 3 * 70
    assert estimate_of(aten._ctc_loss_backward.default, *call) == expected
    # Targets of all samples in one row: as many for each.
    assert estimate_of(aten._ctc_loss.default, log_probs, targets.flatten(), *lengths) == 980
