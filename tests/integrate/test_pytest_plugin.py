"""The plugin in real pytest runs, on real tiny models."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import torch
from tests.support.paths import ROOT
from torch import nn

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.integrate.assertions import Assertions, Options
from torchgauge.integrate.baselines import Baselines

pytest_plugins = ("pytester",)

MODULE = "torchgauge.integrate.pytest_plugin"
MODEL = """
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.torchgauge(iterations=5, warmup=1)

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

X = torch.ones(2, 8)
"""
QUICK = Options(iterations=5, warmup=1)


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


X = torch.ones(2, 8)


@pytest.fixture
def noted():
    return []


@pytest.fixture
def gauge(noted):
    return Assertions(QUICK, lambda row, why: noted.append((row, why)))


@pytest.fixture
def run(pytester):
    """Run pytest on a file; the plugin is loaded by its entry point where it is installed."""
    installed = importlib.metadata.entry_points(group="pytest11", name="torchgauge")
    loaded = [] if any(one.value == MODULE for one in installed) else ["-p", MODULE]

    def run(source, *arguments, fresh=False):
        pytester.makepyfile(test_net=MODEL + source)
        start = pytester.runpytest_subprocess if fresh else pytester.runpytest_inprocess
        return start(*loaded, "-p", "no:cacheprovider", *arguments)

    return run


# What the assertions say


def test_work_and_size_are_exact(gauge, noted):
    macs = 2 * (8 * 16 + 16 * 4)
    cost = gauge.assert_flops(net(), X, below="1M")
    assert cost.macs == macs
    gauge.assert_flops(net(), X, equal=cost.flops)
    gauge.assert_params(net(), equal=212)
    gauge.assert_params(net(), below="1k")
    assert [row[0] for row, _ in noted] == ["flops", "flops", "params", "params"]
    assert {row[-1] for row, _ in noted} == {"pass"}


@pytest.mark.parametrize(
    ("limit", "says"),
    [({"below": 211}, "params: fail, 212, allowed ≤ 211 [Sequential]"),
     ({"equal": 211}, "params of Sequential: 212 counted, 211 expected"),
     ({"equal": 213}, "212 counted, 213 expected")],
)  # fmt: skip
def test_a_wrong_count_says_both_figures(gauge, noted, limit, says):
    with pytest.raises(AssertionError) as caught:
        gauge.assert_params(net(), **limit)
    assert says in str(caught.value)
    assert "Remedy:" in str(caught.value)
    assert noted[-1][0][-1] == "fail"


@torch.library.custom_op("plugin_tests::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_unknown_work_never_passes(gauge, noted):
    class Own(nn.Module):
        def forward(self, x):
            return own(x)

    with pytest.raises(AssertionError, match="plugin_tests::own a formula") as caught:
        gauge.assert_flops(Own(), torch.ones(4, 4), below="1T")
    assert str(caught.value).startswith("flops: inconclusive, ≥ ")
    assert noted[-1][0][-1] == "inconclusive"


def test_a_slow_model_is_told_with_its_interval(noted):
    gauge = Assertions(Options(iterations=400, warmup=1), lambda row, why: noted.append((row, why)))
    with pytest.raises(AssertionError) as caught:
        gauge.assert_latency(net(), X, below="1ns", p99_below="100s")
    text = str(caught.value)
    assert text.startswith("latency: fail, ")
    # Calls that are too much alike in a row, as on a busy machine, have no interval.
    unknown = ", between runs unknown" if noted[0][0][2] else ""
    assert f"allowed ≤ 1.000 ns{unknown} [Sequential]" in text
    assert "400 calls in one process" in text
    assert "torchgauge doctor" in text
    assert [(row[0], row[-1]) for row, _ in noted] == [("latency", "fail"), ("p99", "pass")]


def test_a_fast_model_returns_what_was_measured(gauge):
    found = gauge.assert_latency(net(), X, below="100s", p90_below="100s")
    assert len(found.samples) == 5


def test_the_marker_says_how(noted):
    training = Assertions(Options(iterations=3, warmup=0, train=tg.Training(
        lambda outputs, _: outputs.sum(), lambda p: torch.optim.SGD(p, lr=0.1)
    )), lambda row, why: noted.append((row, why)))  # fmt: skip
    stages = training.assert_latency(net(), X, below="100s").stages
    assert "backward" in {stage.name for stage in stages}
    with pytest.raises(InputError, match="no option 'procceses'"):
        Options.from_marker({"procceses": 3})


def test_memory_is_told_by_part(gauge):
    assert gauge.assert_memory(net(), X, below="1GB").parameters == 212 * 4
    with pytest.raises(AssertionError) as caught:
        gauge.assert_memory(net(), X, below="100B")
    assert "parameters 848 B" in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.assert_latency(net(), X),
        lambda g: g.assert_latency(net(), X, below="5"),
        lambda g: g.assert_latency(net(), X, below=0.005),
        lambda g: g.assert_memory(net(), X),
        lambda g: g.assert_memory(net(), X, below="2gb"),
        lambda g: g.assert_flops(net(), X),
        lambda g: g.assert_params(net(), below=1, equal=1),
    ],
)
def test_what_is_no_limit_is_an_error_of_its_own(gauge, call):
    with pytest.raises(InputError) as caught:
        call(gauge)
    assert caught.value.id in {"threshold-invalid", "option-conflict"}


# Saved runs


def test_a_test_without_a_saved_run_names_the_remedy(gauge, tmp_path):
    with pytest.raises(AssertionError, match="--torchgauge-baseline"):
        gauge.assert_no_regression(net(), X)
    empty = Assertions(QUICK, lambda *_: None, baselines=Baselines(tmp_path, "a"))
    with pytest.raises(AssertionError, match="--torchgauge-update"):
        empty.assert_no_regression(net(), X)


def test_files_of_tests_do_not_meet(tmp_path):
    ids = ["t.py::a[x/y]", "t.py::a[x:y]", "t.py::a", "t.py::b", "t.py::" + "z" * 400, "../t.py::a"]
    paths = [Baselines(tmp_path, one).next() for one in ids]
    again = Baselines(tmp_path, "t.py::a")
    paths += [path for path in (again.next(), again.next()) if path not in paths]
    assert len(set(paths)) == len(ids) + 1
    assert {path.parent for path in paths} == {tmp_path}
    assert max(len(path.name) for path in paths) < 200
    single = tmp_path / "one.json"
    assert Baselines(single, "a").next() == single


@pytest.mark.slow
def test_more_work_than_in_the_saved_run_fails(tmp_path, noted):
    def gauge(**more):
        return Assertions(
            QUICK, lambda row, why: noted.append((row, why)), baselines=Baselines(tmp_path, "a"),
            **more,
        )  # fmt: skip

    assert gauge(update=True).assert_no_regression(net(), X) is None
    same = gauge().assert_no_regression(net(), X)
    outcomes = {one.metric: one.outcome for one in same.rulings}
    assert outcomes["flops"] == outcomes["params"] == "pass"
    assert outcomes["latency"] == "inconclusive"  # one process shows no spread
    assert any(why for row, why in noted if row[0] == "latency")
    with pytest.raises(AssertionError, match="INCONCLUSIVE"):
        gauge(strict=True).assert_no_regression(net(), X)
    bigger = nn.Sequential(*net(), nn.Linear(4, 4))
    with pytest.raises(AssertionError) as caught:
        gauge().assert_no_regression(bigger, X)
    text = str(caught.value)
    assert "✗ params" in text
    assert "✗ flops" in text
    assert "--torchgauge-update" in text
    gauge().assert_no_regression(bigger, X, tolerance=["params:50%", "flops:50%", "memory:50%"])


@pytest.mark.thorough
def test_one_file_for_two_runs_is_said_when_it_is_written(tmp_path):
    written: set[Path] = set()
    file = tmp_path / "one.json"
    first, second = (
        Assertions(QUICK, lambda *_: None, baselines=Baselines(file, name, written), update=True)
        for name in "ab"
    )
    first.assert_no_regression(net(), X)
    before = file.read_bytes()
    with pytest.raises(InputError) as caught:
        second.assert_no_regression(nn.Linear(8, 8), X)
    assert caught.value.id == "baseline-shared"
    assert file.read_bytes() == before


class Broken(nn.Module):
    def forward(self, _):
        raise ValueError("boom")


@pytest.mark.thorough
@pytest.mark.parametrize("update", [False, True])
def test_a_model_that_raises_is_no_doubtful_case(tmp_path, noted, update):
    baselines = [Baselines(tmp_path, "a") for _ in range(2)]
    kept = Assertions(QUICK, lambda *_: None, baselines=baselines[0], update=True)
    kept.assert_no_regression(net(), X)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    gauge = Assertions(QUICK, lambda *_: None, baselines=baselines[1], update=update)
    with pytest.raises(AssertionError, match="boom"):
        gauge.assert_no_regression(Broken(), X)
    assert file.read_bytes() == before


# In pytest


def test_a_run_shows_a_table_and_tells_junit(run, pytester):
    done = run(
        """
def test_fast(torchgauge):
    torchgauge.assert_latency(net(), X, below="100s")
    torchgauge.assert_params(net(), equal=212)

def test_small(torchgauge):
    torchgauge.assert_memory(net(), X, below="1B")

def test_other():
    pass
""",
        "--junitxml=out.xml",
    )
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(
        [
            "E*AssertionError: memory: fail, *, allowed ≤ 1 B [[]Sequential[]]",
            "E*Remedy: *",
            "=* torchgauge =*",
            "test  * metric  * figure  * allowed  * outcome",
            "test_net.py::test_fast *latency *s * ≤ 100.0 s * pass",
            "  * params * 212 *= 212 * pass",
            "test_net.py::test_small *memory *B * ≤ 1 B * fail",
        ]
    )
    assert "assertions.py" not in done.stdout.str()  # our own frames are hidden
    cases = ElementTree.parse(pytester.path / "out.xml").getroot().iter("testcase")
    properties = {p.get("name"): p.get("value") for case in cases for p in case.iter("property")}
    assert properties["torchgauge params"].startswith("212, ")


def test_without_figures_there_is_no_table(run):
    done = run("def test_a():\n    pass\n")
    done.stdout.no_fnmatch_line("*= torchgauge =*")


def test_options_and_marker_are_documented(run):
    run("", "--help").stdout.fnmatch_lines(["*--torchgauge-baseline=PATH*"])
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.torchgauge(processes=1,*"])
    done = run("def test_a():\n    pass\n", "--torchgauge-update")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--torchgauge-baseline PATH" in done.stderr.str()


def test_the_closest_marker_wins(run):
    done = run(
        """
@pytest.mark.torchgauge(iterations=7)
def test_a(torchgauge):
    assert len(torchgauge.assert_latency(net(), X, below="100s").samples) == 7

@pytest.mark.torchgauge(speed=1)
def test_b(torchgauge):
    pass
"""
    )
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*The marker torchgauge has no option 'speed'.*"])


@pytest.mark.slow
def test_a_baseline_is_written_kept_and_compared_with(run, pytester):
    source = """
def test_a(torchgauge):
    torchgauge.assert_no_regression(net(), X)

@pytest.mark.parametrize("width", [8])
def test_b(torchgauge, width):
    torchgauge.assert_no_regression(nn.Linear(8, width), X)
"""
    place = ("--torchgauge-baseline", "runs")
    run(source, *place).assert_outcomes(failed=2)
    run(source, *place, "--torchgauge-update").assert_outcomes(passed=2)
    saved = sorted((pytester.path / "runs").iterdir())
    assert len(saved) == 2
    done = run(source, *place)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        ["[?] test_net.py::test_a: latency inconclusive: *mark.torchgauge(processes=10)"]
    )
    run(source, *place, "--torchgauge-strict").assert_outcomes(failed=2)
    # As if the layer had been smaller before.
    before = tg.load(saved[1])
    size = msgspec.structs.replace(before.size, parameters=before.size.parameters - 1)
    msgspec.structs.replace(before, size=size).save(saved[1])
    done = run(source, *place)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["E*✗ params *"])


@pytest.mark.slow
def test_figures_come_back_from_workers(run):
    done = run(
        """
@pytest.mark.parametrize("n", range(2))
def test_a(torchgauge, n):
    torchgauge.assert_latency(net(), X, below="100s")
""",
        "-n", "2", fresh=True,
    )  # fmt: skip
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        [
            "test_net.py::test_a[[]0[]]*latency*pass",
            "test_net.py::test_a[[]1[]]*latency*pass",
            "! 2 workers ran side by side*-n 0.",
        ]
    )


def test_pytest_pays_nothing_for_it():
    code = f"import sys, {MODULE}; print(*{{n.partition('.')[0] for n in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "msgspec", "rich"}.isdisjoint(done.stdout.split())


def test_pytest_finds_it_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"torchgauge": MODULE}
