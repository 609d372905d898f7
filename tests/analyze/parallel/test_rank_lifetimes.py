"""What is alive on a rank, from lifetimes whose sums can be computed by hand."""

from torchgauge.analyze.parallel.rank_lifetimes import Lifetimes, Storage, rank_memory


def lifetimes():
    """10 bytes of parameters, an activation of 8, a gather of 6 on its own stream, a gradient."""
    lives = Lifetimes()
    lives.resting.append((Storage("parameters", "a"), 10))
    activation, temporary = Storage("activations", "a"), Storage("activations", "a")
    gather, gradient = Storage("gathered", "b", "all_gather"), Storage("gradients", "b")
    lives.begin_phase("forward")
    lives.change(gather, 6)
    lives.change(temporary, 3)
    lives.change(activation, 8)
    lives.change(temporary, -3)
    lives.change(gather, -6)
    lives.begin_phase("backward")
    lives.change(gradient, 10)
    lives.change(activation, -8)
    lives.begin_phase("optimizer")
    lives.change(gradient, -10)
    return lives


def test_the_peak_is_divided_by_part_and_layer():
    memory = rank_memory(lifetimes())
    assert (memory.peak, memory.peak_phase) == (28, "backward")
    assert memory.parts_at_peak == {"parameters": 10, "gradients": 10, "activations": 8}
    assert memory.layers_at_peak == {"a": 18, "b": 10}
    assert memory.phases == {"forward": 27, "backward": 28, "optimizer": 20}
    assert memory.resting == {"parameters": 10}


def test_what_the_forward_pass_drops_is_workspace():
    largest = rank_memory(lifetimes()).largest
    assert (largest["workspace"], largest["activations"], largest["gathered"]) == (3, 8, 6)


def test_pools_of_streams_do_not_share_what_is_free():
    memory = rank_memory(lifetimes())
    assert {pool.stream: pool.peak for pool in memory.pools} == {"compute": 28, "all_gather": 6}
    assert memory.reserved == 34


def test_a_sum_that_takes_the_place_of_its_operand_counts_once():
    lives = Lifetimes()
    old, new = Storage("workspace", ""), Storage("workspace", "")
    lives.begin_phase("backward")
    lives.change(old, 5)
    lives.change(new, 5, may_replace=True)
    lives.change(old, -5)
    assert rank_memory(lives).peak == 5
