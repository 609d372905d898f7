"""What a file of rules may say, and that what it may not say is named."""

from datetime import timedelta

import pytest

from torchgauge.errors import InputError
from torchgauge.history.rules import read
from torchgauge.quantities import period, setting

EVERY = """
[[threshold]]
name = "fast enough"
metric = "latency_p99"
above = "12ms"
branch = "main"

[[threshold]]
metric = "throughput_samples"
below = "1000samples/s"

[[change]]
metric = "host_time"
layer = "encoder.*"
by = "3%"
within = 5

[[budget]]
metric = "bytes"
layer = "*"
sum = "1.5GiB"

[[budget]]
metric = "memory_peak"
growth = "10%"
over = "90d"

[webhook]
url_env = "HOOK"
"""


def rules(tmp_path, text):
    path = tmp_path / "alerts.toml"
    path.write_text(text)
    return read(path)


def test_every_kind_of_rule(tmp_path):
    found = rules(tmp_path, EVERY)
    assert (found.url, found.url_env) == ("", "HOOK")
    assert [(r.name, r.kind, r.limit, r.unit) for r in found.rules] == [
        ("fast enough", "threshold", 0.012, "s"),
        ("threshold 2", "threshold", 1000.0, "1/s"),
        ("change 1", "change", 0.03, "ratio"),
        ("budget 1", "sum", 1.5 * 2**30, "B"),
        ("budget 2", "growth", 0.1, "ratio"),
    ]
    first, second, change, total, growth = found.rules
    assert (first.branch, first.side, second.side) == ("main", "above", "below")
    assert (change.layer, change.within, total.layer) == ("encoder.*", 5, "*")
    assert growth.over == timedelta(days=90)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[threshold]]\nabove = =", "line 2"),
        ("[[treshold]]", "treshold"),
        ("threshold = 3", r"\[\[threshold\]\]"),
        ("[[threshold]]\nabove = 3", "needs a 'metric'"),
        ("[[threshold]]\nmetric = 3\nabove = 3", "needs a 'metric'"),
        ("[[threshold]]\nmetric = 'm'", "either 'above' or 'below'"),
        ("[[threshold]]\nmetric = 'm'\nabove = 1\nbelow = 2", "either"),
        ("[[threshold]]\nmetric = 'm'\nabove = 1\nbrunch = 'b'", "brunch"),
        ("[[change]]\nmetric = 'm'\nwithin = 0", "within"),
        ("[[budget]]\nmetric = 'm'\ngrowth = '3%'", "over"),
        ("[[budget]]\nmetric = 'm'\nsum = '3s'\nover = '3d'", "over"),
        ("[[budget]]\nmetric = 'peak'\nlayer = '*'\nsum = '3MB'", "add up"),
        ("[webhook]\nurl = 3", "webhook"),
        ("[webhook]\naddress = 'x'", "webhook"),
        ("webhook = 3", "webhook"),
    ],
)
def test_what_is_no_rule_is_named(text, says, tmp_path):
    with pytest.raises(InputError, match=says) as error:
        rules(tmp_path, text)
    assert error.value.id == "alerts-invalid"


WINDOWS = """
[[objective]]
name = "interactive"
monitor = "api*"
under = "100ms"
share = "99%"

[[objective]]
series = "queue"
share = "99.9%"
burn = 6

[[level]]
monitor = "api"
by = "5%"
within = "2d"
false_alarm_in = "90d"

[[threshold]]
metric = "monitor_latency_p99"
above = "200ms"
"""


def test_rules_on_windows(tmp_path):
    found = rules(tmp_path, WINDOWS)
    first, second, level = found.window_rules
    assert (first.name, first.kind, first.series) == ("interactive", "objective", "latency")
    assert (first.objective.share, first.objective.limit, first.burn) == (0.99, 0.1, 14.4)
    assert (second.series, second.objective.limit, second.burn) == ("queue", None, 6)
    assert second.objective.share == pytest.approx(0.999)
    assert (level.monitor, level.step, level.within) == ("api", 0.05, 2 * 86400)
    assert level.budget.days == 90


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[objective]]\nunder = '100ms'\nshare = 0.99", "'share'"),
        ("[[objective]]\nshare = '100%'", "'share'"),
        ("[[objective]]\nshare = '99%'\nunder = '3%'", "'under'"),
        ("[[objective]]\nshare = '99%'\nburn = -1", "'burn'"),
        ("[[objective]]\nshare = '90%'", "can never burn"),
        ("[[objective]]\nshare = '99%'\nmetric = 'm'", "metric"),
        ("[[objective]]\nshare = '99%'\nmonitor = 3", "texts"),
        ("[[level]]\nby = '3ms'", "'by'"),
        ("[[level]]\nfalse_alarm_in = '0d'", "false_alarm_in"),
        ("level = 3", r"\[\[level\]\]"),
        ("[[change]]\nmetric = 'monitor_latency_p50'", r"\[\[level\]\]"),
    ],
)
def test_what_is_no_rule_on_windows_is_named(text, says, tmp_path):
    with pytest.raises(InputError, match=says) as error:
        rules(tmp_path, text)
    assert error.value.id == "alerts-invalid"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError) as error:
        read(tmp_path / "none.toml")
    assert error.value.id == "file-missing"


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        (3, 3.0, ""), (0.5, 0.5, ""), ("3", 3.0, ""), ("2.5M", 2.5e6, ""), ("12 ms", 0.012, "s"),
        ("7µs", 7e-6, "s"), ("2GB", 2e9, "B"), ("2GiB", 2.0 * 2**30, "B"), ("1e3ms", 1.0, "s"),
        ("-3%", -0.03, "ratio"), ("40images/s", 40.0, "1/s"), ("40/s", 40.0, "1/s"),
    ],
)  # fmt: skip
def test_amounts(text, value, unit):
    assert setting(text) == (pytest.approx(value), unit)


@pytest.mark.parametrize(
    "text",
    [
        *("", "ms", "3 parsecs", "3mS", "1,5ms", "٣ms3", None, [], True),
        *("1e308TB", "9" * 400 + "ms", 10**400, float("inf"), float("nan"), 1e308),
    ],
)
def test_no_amounts(text):
    with pytest.raises(InputError) as error:
        setting(text)
    assert error.value.id == "quantity"


def test_periods():
    assert period("36h") == timedelta(hours=36)
    assert period("2w") == timedelta(days=14)
    for text in ("30", "30m", "-3d", "9999999d", 30):
        with pytest.raises(InputError):
            period(text)
