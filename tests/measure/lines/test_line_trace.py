"""Functions by line: hits that are counted by hand, times on a clock that the functions move."""

import asyncio
import runpy
import sys
import threading

import pytest
from tests.support.fakes import FakeClock

from torchgauge.errors import MeasurementError
from torchgauge.measure.lines.line_memory import LineTrace, allocated
from torchgauge.records.timeline.tree import TracedFunction, TracedLine

FILE = __file__


def traced(work, *names):
    """Return the functions of these names that `work` called, by name, with times by offset."""
    clock = FakeClock()
    trace = LineTrace(names, clock)
    with trace.tracing():
        work(clock)
    return {one.name.rpartition(".")[2]: one for one in trace.functions()}, trace


def by_line(function):
    """Return hits and whole seconds by line, counted from the function's first."""
    return {one.line - function.line: (one.hits, round(one.time)) for one in function.lines}


def test_a_line_has_its_hits_and_the_time_of_what_it_calls():
    def inner(clock):
        clock.advance(2)
        clock.advance(3)

    def outer(clock):
        for _ in range(4):
            inner(clock)
        clock.advance(1)

    functions, trace = traced(outer, "inner", "outer")
    assert by_line(functions["inner"]) == {1: (4, 8), 2: (4, 12)}
    assert by_line(functions["outer"]) == {1: (5, 0), 2: (4, 20), 3: (1, 1)}
    assert functions["inner"].calls == 4
    assert round(functions["outer"].time) == 21
    assert functions["outer"].lines[1].source == "inner(clock)"
    assert functions["outer"].file == FILE
    assert trace.missing == ()


def test_imports_that_were_done_before_the_script_began_are_no_lines_of_it(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom torch import (\n    nn,\n)\nimport made_for_this\n"
        "import torch; net = nn.Linear(2, 2)\nfrom made_for_this import value\n"
        "def work():\n    import torch\n    return value\nwork()\n"
    )
    (tmp_path / "made_for_this.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    trace = LineTrace()
    with trace.tracing():
        runpy.run_path(str(script), run_name="__main__")
    functions = {function.name: function for function in trace.functions()}
    assert [line.line for line in functions["<module>"].lines] == [5, 6, 7, 8, 11]
    assert [line.line for line in functions["work"].lines] == [9, 10]
    module = functions["<module>"]
    assert module.time == pytest.approx(sum(line.time for line in module.lines))


def test_of_recursion_the_innermost_call_has_the_time():
    def down(clock, depth):
        clock.advance(1)
        if depth:
            down(clock, depth - 1)
        clock.advance(10)

    functions, _ = traced(lambda clock: down(clock, 3), "down")
    # Four seconds, three returns of nothing, forty seconds: not 10 × (1 + 2 + 3 + 4).
    assert by_line(functions["down"]) == {1: (4, 4), 2: (4, 0), 3: (3, 0), 4: (4, 40)}
    assert functions["down"].calls == 4


def test_a_line_goes_on_where_the_same_function_was_called_in_it():
    def down(clock, depth):
        return depth and (down(clock, depth - 1), clock.advance(5))

    functions, _ = traced(lambda clock: down(clock, 3), "down")
    assert by_line(functions["down"]) == {1: (4, 15)}


def test_a_generator_has_no_time_while_it_waits():
    def numbers(clock):
        for number in range(3):
            yield number
            clock.advance(1)

    def use(clock):
        for _ in numbers(clock):
            clock.advance(100)

    functions, _ = traced(use, "numbers")
    assert by_line(functions["numbers"]) == {1: (4, 0), 2: (3, 0), 3: (3, 3)}
    assert functions["numbers"].calls == 1


def test_a_coroutine_has_no_time_while_another_runs():
    async def sleeper(clock, seconds):
        await asyncio.sleep(0)
        clock.advance(seconds)

    async def both(clock):
        await asyncio.gather(sleeper(clock, 1), sleeper(clock, 10))

    functions, _ = traced(lambda clock: asyncio.run(both(clock)), "sleeper")
    assert by_line(functions["sleeper"]) == {1: (2, 0), 2: (2, 11)}


def test_what_is_raised_passes_and_ends_its_lines():
    def failing(clock):
        clock.advance(2)
        raise KeyError

    def catching(clock):
        try:
            failing(clock)
        except KeyError:
            clock.advance(5)
        clock.advance(7)

    functions, _ = traced(catching, "failing", "catching")
    assert by_line(functions["failing"]) == {1: (1, 2), 2: (1, 0)}
    assert by_line(functions["catching"])[4] == (1, 5)
    assert round(functions["catching"].time) == 14
    with pytest.raises(SystemExit):
        traced(lambda _: sys.exit(3))
    assert sys.gettrace() is None


def test_threads_are_traced_together_and_each_has_its_own_clock():
    def work(clock):
        for _ in range(1000):
            clock.advance(0.001)

    def start(clock):
        threads = [threading.Thread(target=work, args=(clock,)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    functions, _ = traced(start, "work")
    assert functions["work"].calls == 4
    assert by_line(functions["work"])[2][0] == 4000
    assert threading.gettrace() is None


def test_a_thread_that_goes_on_is_left_alone_and_has_its_time_until_then():
    waiting, go_on = threading.Event(), threading.Event()

    def work(clock):
        waiting.set()
        go_on.wait()

    def start(clock):
        threading.Thread(target=work, args=(clock,), daemon=True).start()
        waiting.wait()
        clock.advance(3)

    functions, _ = traced(start, "work")
    go_on.set()
    assert by_line(functions["work"])[2][1] in (0, 3)  # it may not have begun to wait
    assert round(functions["work"].time) == 3


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("method", True),
        ("Owner.method", True),
        ("test_functions_are_named_as_in_the_source.Owner.method", True),
        ("test_line_trace.py:method", True),
        ("lines/test_line_trace.py:Owner.method", True),
        ("other.py:method", False),
        ("race.py:method", False),
        ("ethod", False),
        ("Other.method", False),
    ],
)
def test_functions_are_named_as_in_the_source(name, found):
    class Owner:
        def method(self):
            return [x * 2 for x in "ab"]

    functions, trace = traced(lambda _: Owner().method(), name)
    assert ("method" in functions) == found
    assert trace.missing == (() if found else (name,))


def test_without_names_the_user_s_functions_are_traced_and_no_library_s():
    import json

    def mine():
        return json.dumps([1])

    functions, _ = traced(lambda _: mine())
    assert "mine" in functions
    assert "dumps" not in functions
    named, _ = traced(lambda _: mine(), "json/__init__.py:dumps")
    assert list(named) == ["dumps"]


def test_a_library_s_tracer_is_not_replaced_and_one_that_takes_over_is_noticed():
    def other(*_):
        return None

    sys.settrace(other)
    try:
        with pytest.raises(MeasurementError) as caught, LineTrace().tracing():
            pass
    finally:
        sys.settrace(None)
    assert caught.value.id == "lines-unavailable"
    _, trace = traced(lambda _: sys.settrace(other))
    assert trace.cut
    assert sys.gettrace() is None


def test_bytes_belong_to_the_innermost_line_of_each_function_on_the_stack():
    def inner():
        return 1

    def outer():
        return inner()

    def line(function):
        return function.__code__.co_firstlineno + 1

    functions = tuple(
        TracedFunction(
            file=FILE, name=one.__qualname__, line=line(one) - 1, calls=1, time=1.0,
            lines=(TracedLine(line=line(one), hits=1, time=1.0),),
        )
        for one in (inner, outer)
    )  # fmt: skip
    stacks = [
        (((FILE, line(inner)), (FILE, line(outer)), ("other.py", 3)), 100),
        (((FILE, line(outer)), (FILE, line(outer))), 10),  # it called itself
        ((("other.py", line(outer)),), 1000),
    ]
    found = allocated(functions, (inner.__code__, outer.__code__), stacks)
    assert [one.allocated for one in found] == [100, 110]
    assert [one.lines[0].allocated for one in found] == [100, 110]
