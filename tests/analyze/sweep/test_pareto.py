"""The front, by hand."""

from tests.support.sweeps import cell, ended

from torchgauge.analyze.sweep.constraints import front


def test_dominated_cells_are_off_the_front():
    cells = [
        cell(1, 0.010, 100),  # fastest, least memory
        cell(2, 0.015, 200),  # more per second
        cell(2, 0.016, 200),  # slower at the same memory
        ended("crashed", batch=4),
        cell(4, 0.020, 150),  # more per second than both twos, with less memory
    ]
    found = front(cells)
    assert found.objectives == ("latency", "throughput", "memory")
    assert found.cells == (0, 1, 4)


def test_equal_cells_are_both_on_it():
    assert front([cell(1), cell(1)]).cells == (0, 1)


def test_what_no_cell_has_is_no_objective():
    found = front([cell(1, 0.01, None), cell(1, 0.02, None)])
    assert found.objectives == ("latency", "throughput")
    assert found.cells == (0,)


def test_a_cell_of_unknown_memory_is_on_no_front():
    assert front([cell(1, 0.01, None), cell(1, 0.02, 100)]).cells == (1,)


def test_nothing_has_an_empty_front():
    assert front([ended("crashed")]).cells == ()
