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


def test_what_is_on_the_host_is_not_on_the_device():
    lives = lifetimes()
    lives.change(Storage("workspace", "b"), 50)  # what the optimizer makes, on the host as well
    assert rank_memory(lives).peak == 60
    memory = rank_memory(lives, {"parameters", "gradients", "optimizer"})
    assert (memory.peak, memory.peak_phase, memory.resting) == (17, "forward", {})
    assert memory.parts_at_peak == {"activations": 8, "gathered": 6, "workspace": 3}


def test_the_timeline_has_the_peak_and_every_phase():
    memory = rank_memory(lifetimes())
    totals = [sum(moment.parts) for moment in memory.timeline]
    assert totals == [16, 19, 27, 24, 18, 28, 20, 10]
    assert [moment.phase for moment in memory.timeline[3:]] == [
        "forward", "forward", "backward", "backward", "optimizer"
    ]  # fmt: skip


def test_a_long_timeline_is_thinned_to_its_highest_moments():
    lives = Lifetimes()
    lives.begin_phase("forward")
    for size in range(1, 5001):
        storage = Storage("activations", "a")
        lives.change(storage, size)
        lives.change(storage, -size)
    timeline = rank_memory(lives).timeline
    assert len(timeline) <= 401
    assert max(sum(moment.parts) for moment in timeline) == 5000
