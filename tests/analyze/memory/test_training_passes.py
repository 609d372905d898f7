"""What is alive when, by hand."""

from torchgauge.analyze.memory.training_memory import Block, BlockLifetimes, passes


def two_passes():
    """An activation of 10, an output of 3; then scratch of 4, a gradient of 5, a temporary of 2."""
    lives = BlockLifetimes()
    activation, output = (lives.begin(Block(size, backward=False)) for size in (10, 3))
    end = len(lives.events)
    gradient = lives.begin(Block(5, backward=True))
    lives.end(lives.begin(Block(4, backward=True, scratch=True)))
    lives.end(activation)
    lives.end(lives.begin(Block(2, backward=True)))
    return lives, end, gradient, output


def test_the_peak_its_parts_and_what_is_left():
    lives, end, gradient, _ = two_passes()
    found = passes(lives, end, [gradient])
    assert (found.peak, found.moment) == (22, "backward")
    assert found.parts == {"gradients": 5, "activations": 13, "workspace": 4}
    assert (found.activations, found.after_backward) == (13, 8)


def test_a_peak_before_the_end_of_the_forward_pass_is_its():
    lives = BlockLifetimes()
    lives.end(lives.begin(Block(9, backward=False)))
    found = passes(lives, len(lives.events), [])
    assert (found.peak, found.moment, found.activations, found.after_backward) == (
        9,
        "forward",
        0,
        0,
    )


def summed(*, first_ends):
    """Two blocks of 6, and their sum, which may take the place of the first."""
    lives = BlockLifetimes()
    first, second = (lives.begin(Block(6, backward=True)) for _ in range(2))
    lives.begin(Block(6, backward=True), may_replace=True)
    for ended in (first, second) if first_ends else (second,):
        lives.end(ended)
    lives.begin(Block(1, backward=True))
    return passes(lives, 0, []).peak


def test_a_sum_takes_the_place_of_what_ends_with_it():
    assert summed(first_ends=True) == 12
    assert summed(first_ends=False) == 13


def test_nothing_at_all():
    found = passes(BlockLifetimes(), 0, [])
    assert (found.peak, found.activations, found.after_backward) == (0, 0, 0)
