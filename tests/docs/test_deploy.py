"""The files for operators: read by the programs that they are for, with names that are served."""

import configparser
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error

import pytest
import yaml
from tests.support import deployed
from tests.support.deployed import DEPLOY, names_in
from tests.support.live_sites import ask, monitors, served
from tests.support.paths import ROOT
from tests.support.prometheus import get, program, scraping, until

from torchgauge.cli import serve
from torchgauge.cli.main import main
from torchgauge.live.routes import Site, respond

DASHBOARDS = sorted(DEPLOY.glob("grafana-*.json"))
RULES = DEPLOY / "prometheus-rules.yml"
TOKEN = "0123456789abcdef"


def read(name):
    return yaml.safe_load((DEPLOY / name).read_text())


def rules():
    return [rule for group in read(RULES.name)["groups"] for rule in group["rules"]]


def expressions(dashboard):
    """Return the queries of a dashboard, with the variables as Grafana sets them at first."""
    content = json.loads(dashboard.read_text())
    settings = {"$monitor": ".*", "$target": ".*", "$within": "0.1"}
    settings |= {"$__rate_interval": "10s", "$__range": "10s"}
    for panel in content["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in settings.items():
                text = text.replace(name, value)
            assert "$" not in text
            yield panel["title"], text


def page_names(page):
    """Return the names on a page of metrics, as `names_in` has those of expressions."""
    return names_in(re.sub(r"^#.*\n", "", page, flags=re.MULTILINE))


def test_what_dashboards_and_rules_name_is_on_the_page(tmp_path):
    with deployed.site(tmp_path) as (site, _):
        served_names = page_names(respond(site, "/metrics").body.decode())
    texts = [text for dashboard in DASHBOARDS for _, text in expressions(dashboard)]
    for variables in (json.loads(d.read_text())["templating"]["list"] for d in DASHBOARDS):
        texts += [variable["query"]["query"] for variable in variables[1:]]
    texts += [re.sub(r"torchgauge:\w+", "", rule["expr"]) for rule in rules()]
    names = set().union(*map(names_in, texts)) - {"torchgauge_"}
    assert len(names) > 20
    assert names <= served_names


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafana_s_own_types_hold_all_of_a_dashboard(path):
    pytest.importorskip("grafana_foundation_sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    content = json.loads(path.read_text())
    again = json.loads(json.dumps(Dashboard.from_json(content), cls=JSONEncoder))
    assert list(lost(content, again)) == []
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    places = [panel["gridPos"] for panel in content["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def lost(content, again, path=""):
    """Yield the paths of what the types do not have."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from lost(value, (again or {}).get(name), f"{path}/{name}")
    elif isinstance(content, list) and isinstance(again, list) and len(content) == len(again):
        for number, (value, other) in enumerate(zip(content, again, strict=True)):
            yield from lost(value, other, f"{path}/{number}")
    elif content != again:
        yield path


def test_promtool_takes_rules_and_configuration():
    tool = program("promtool")
    subprocess.run([tool, "check", "rules", RULES], check=True, capture_output=True)
    command = [tool, "check", "config", "--syntax-only", DEPLOY / "prometheus.yml"]
    subprocess.run(command, check=True, capture_output=True)


def series(name, values, **labels):
    pairs = ",".join(f'{key}="{value}"' for key, value in {"monitor": "api", **labels}.items())
    return {"series": f"{name}{{{pairs}}}", "values": values}


# Of 60 requests a minute 9 or 12 fail or take more than 100 ms: 15 % and 20 % are above 14.4 %.
BURNING = [
    series("torchgauge_request_events_total", "0+60x90"),
    series("torchgauge_request_seconds_bucket", "0+50x90", le="0.1"),
    series("torchgauge_request_seconds_count", "0+55x90"),
]
GOOD = [
    series("torchgauge_request_events_total", "0+60x90"),
    series("torchgauge_request_seconds_bucket", "0+54x90", le="0.1"),
    series("torchgauge_request_seconds_count", "0+55x90"),
]
WITHOUT_BUCKET = [series("torchgauge_request_seconds_count", "0+55x90")]
FAILING = [
    series("torchgauge_latency_events_total", "0+60x90"),
    series("torchgauge_latency_errors_total", "0+6x90", kind="RuntimeError"),
]
DAY = 24 * 60


def slower(before, after):
    """Return buckets of a day of one level and half an hour of another, a call a second."""
    names, made = {0.05: "0.05", 0.063: "0.063", 0.08: "0.08", 0.1: "0.1", math.inf: "+Inf"}, []
    for bound in names:
        steps = [60 if level <= bound else 0 for level in (before, after)]
        values = f"0+{steps[0]}x{DAY} {steps[0] * DAY}+{steps[1]}x60"
        made.append(
            series(
                "torchgauge_latency_seconds_bucket", values, le=str(bound).replace("inf", "+Inf")
            )
        )
    return [*made, series("torchgauge_latency_events_total", f"0+60x{DAY + 60}")]


@pytest.mark.parametrize(
    ("alert", "at", "given", "fires"),
    [
        ("TorchgaugeBudgetBurns", "65m", BURNING, True),
        ("TorchgaugeBudgetBurns", "65m", GOOD, False),
        ("TorchgaugeObjectiveNotMeasured", "20m", WITHOUT_BUCKET, True),
        ("TorchgaugeObjectiveNotMeasured", "20m", GOOD, False),
        ("TorchgaugeCallsFail", "20m", FAILING, True),
        ("TorchgaugeFilesUnreadable", "9m",
         [series("torchgauge_unreadable_files", "1+0x20")], True),
        ("TorchgaugeServeFails", "9m",
         [series("torchgauge_serve_errors", "1+0x20", part="history")], True),
        ("TorchgaugeRegression", "9m", [series("torchgauge_history_alerts", "2+0x20")], True),
        ("TorchgaugeRuleBroken", "9m", [series("torchgauge_alerts", "0+0x20")], False),
        ("TorchgaugeScrapeFails", "9m", [series("up", "0+0x20", job="torchgauge-serve")], True),
    ],
)  # fmt: skip
def test_an_alert_fires_when_it_should(tmp_path, alert, at, given, fires):
    check_alert(tmp_path, alert, at, given, fires=fires)


STOPPED = series("torchgauge_latency_events_total", f"0+60x{DAY} {60 * DAY}+0x60")
GROWN = series("torchgauge_memory_bytes", "100+0x360 130+0x240", kind="resident")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("alert", "at", "given", "fires"),
    [
        ("TorchgaugeSlowerThanYesterday", f"{DAY + 59}m", slower(0.06, 0.09), True),
        ("TorchgaugeSlowerThanYesterday", f"{DAY + 59}m", slower(0.06, 0.06), False),
        ("TorchgaugeSilent", f"{DAY + 59}m", [STOPPED], True),
        ("TorchgaugeMemoryGrows", "9h", [GROWN], True),
    ],
)
def test_an_alert_that_compares_with_earlier_hours_fires(tmp_path, alert, at, given, fires):
    check_alert(tmp_path, alert, at, given, fires=fires)


def check_alert(tmp_path, alert, at, given, *, fires):
    tool = program("promtool")
    case = {"interval": "1m", "input_series": given, "promql_expr_test": []}
    expression = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": 1}] if fires else []
    case["promql_expr_test"] = [{"expr": expression, "eval_time": at, "exp_samples": samples}]
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yml").write_text(json.dumps(test))
    done = subprocess.run(
        [tool, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def arguments_of(*words):
    """Return the options that a command line of `torchgauge` has, as it would run them."""
    chosen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "run", lambda options: chosen.append(options) or 0)
        assert main(list(words)) == 0
    (options,) = chosen
    return options


def test_the_container_serves_the_folder_and_asks_for_its_health():
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    steps = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    entry, command = json.loads(steps["ENTRYPOINT"]), json.loads(steps["CMD"])
    options = arguments_of(*entry[1:], *command)
    assert (entry[0], options.host) == ("torchgauge", "0.0.0.0")
    assert str(options.monitor) == steps["VOLUME"]
    assert str(options.port) == steps["EXPOSE"]
    check = json.loads(steps["HEALTHCHECK"].partition("CMD ")[2])
    with served(Site(None, monitors(looks=1))) as server:
        own = check[-1].replace(f":{options.port}/", f":{server.server_address[1]}/")
        subprocess.run([sys.executable, *check[1:-1], own], check=True)
        dead = check[-1].replace(f":{options.port}/", ":9/")
        done = subprocess.run(
            [sys.executable, *check[1:-1], dead], capture_output=True, check=False
        )
    assert done.returncode != 0


def test_the_probes_of_kubernetes_are_answered():
    kinds = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    secret, deployment, service = kinds
    _, container = deployment["spec"]["template"]["spec"]["containers"]
    options = arguments_of("serve", "--host", "0.0.0.0", *container["args"])
    (mount,) = container["volumeMounts"]
    assert str(options.monitor) == mount["mountPath"]
    (setting,) = container["env"]
    key = setting["valueFrom"]["secretKeyRef"]
    token = secret["stringData"][key["key"]]
    assert (setting["name"], key["name"]) == (serve.TOKEN, secret["metadata"]["name"])
    (port,) = container["ports"]
    assert (port["containerPort"], port["name"]) == (options.port, "metrics")
    with served(Site(None, monitors(looks=1)), token=token) as server:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[name]["httpGet"]
            assert probe["port"] == port["name"]
            assert ask(server, probe["path"], Host="10.1.2.3:7878")[0] == 200
    assert (
        service["spec"]["selector"].items()
        <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )


def test_the_unit_of_systemd_is_valid(tmp_path):
    text = (DEPLOY / "torchgauge-serve.service").read_text()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    path, *words = shlex.split(unit["Service"]["ExecStart"])
    options = arguments_of(*words)
    assert (options.host, str(options.monitor)) == ("0.0.0.0", "/var/lib/torchgauge/monitors")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    own = tmp_path / "torchgauge-serve.service"
    own.write_text(text.replace(path, sys.executable))
    command = ["systemd-analyze", "verify", own]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_collector_s_pipelines_have_what_is_declared():
    content = read("otel-collector.yaml")
    for pipeline in content["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(content[kind])
    assert set(content["service"]["extensions"]) <= set(content["extensions"])
    port = content["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    assert f'otlp="http://collector:{port}/v1/metrics"' in (ROOT / "docs/deploy.md").read_text()


def test_every_file_is_on_the_page_and_in_the_wheel():
    page = (ROOT / "docs" / "deploy.md").read_text()
    names = {path.name for path in DEPLOY.iterdir()}
    assert {name for name in names if f"(deploy/{name})" in page} == names
    assert '"docs/deploy" = "share/torchgauge/deploy"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.thorough
def test_a_real_prometheus_answers_every_panel_and_rule(tmp_path):
    """The command as the files run it, with its token; a job that ends is scraped afterwards."""
    program("prometheus")
    job = "import sys, tests.support.deployed as d, torchgauge as tg, time\n" + (
        "with tg.monitor(name='api', folder=sys.argv[1], interval=0.1) as monitor:\n"
        "    while True:\n        d.record(monitor)\n        time.sleep(0.1)\n"
    )
    deployed.add_runs(tmp_path / "h.db")
    rules = tmp_path / "rules.toml"
    rules.write_text('[[threshold]]\nmetric = "latency_median"\nabove = "1ms"\n'
                     '[[threshold]]\nmetric = "monitor_latency_p99"\nabove = "1ms"\n')  # fmt: skip
    folder = str(tmp_path / "monitors")
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", serve.TOKEN: TOKEN}
    command = [sys.executable, "-m", "torchgauge", "serve", "--monitor", folder, "--port", "0"]
    command += ["--history", str(tmp_path / "h.db"), "--alerts", str(rules)]
    running = [
        subprocess.Popen([sys.executable, "-c", job, folder], env=environment),
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True),
    ]
    try:
        port = int(re.search(r":(\d+)/", running[1].stdout.readline())[1])
        assert get(f"http://127.0.0.1:{port}/healthz") == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"http://127.0.0.1:{port}/metrics")
        scraped = scraping(tmp_path / "p", port, interval="1s", rules=[str(RULES)], token=TOKEN)
        with scraped as prometheus:
            prometheus.until("up", lambda up: up == 1)
            for dashboard in DASHBOARDS:
                for title, query in expressions(dashboard):
                    until(lambda query=query: prometheus.values(query), what=f"{title}: {query}")
            within = 'sum(torchgauge_request_seconds_bucket{le="0.1"})'
            share = prometheus.value(f"{within} / sum(torchgauge_request_events_total)")
            assert share == pytest.approx(1 / 3, abs=0.02)
            groups = prometheus.api("rules")["groups"]
            assert sum(len(group["rules"]) for group in groups) == 13
            running[0].kill()
            assert prometheus.until("torchgauge_latency_events_total") > 0
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
