"""`torchgauge serve`, as a user types it."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from tests.support import history_runs as runs
from tests.support.paths import ROOT

from torchgauge.cli import serve
from torchgauge.cli.main import main
from torchgauge.history.store import Store


@pytest.fixture
def history(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHGAUGE_STORE", raising=False)
    with Store.open(str(tmp_path / "h.db")) as store:
        store.add(runs.run(0))
        yield store


def error_of(capsys, *arguments):
    """Return the exit code and the id of the error of a command that does not begin to serve."""
    code = main(["serve", *arguments])
    return code, re.search(r"error: .*\[([a-z-]+)\]", capsys.readouterr().err)[1]


def test_no_history(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STORE", str(tmp_path / "none.db"))
    assert error_of(capsys) == (2, "store-missing")
    named = str(tmp_path / "other.db")
    assert error_of(capsys, "--history", named, "--monitor", str(tmp_path)) == (2, "store-missing")


def test_a_history_of_a_newer_version(capsys, history):
    history._engine.raw_connection().cursor().execute("UPDATE torchgauge_store SET version = 999")
    assert error_of(capsys, "--history", "h.db") == (2, "store-newer")


def test_a_file_that_is_no_history(capsys, tmp_path, monkeypatch):
    (tmp_path / "notes.db").write_text("notes\n" * 1000)
    assert error_of(capsys, "--history", str(tmp_path / "notes.db")) == (2, "store-damaged")


def test_a_port_that_is_taken(capsys, history):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert error_of(capsys, "--history", "h.db", "--port", port) == (2, "port-taken")


@pytest.mark.parametrize("token", ["short", "0123456789abcdef;", "ü" * 20, "a b" * 10])
def test_a_token_that_is_none(capsys, history, monkeypatch, token):
    monkeypatch.setenv(serve.TOKEN, token)
    assert error_of(capsys, "--history", "h.db", "--port", "0") == (2, "option-invalid")


def test_rules_that_are_none(capsys, history, tmp_path):
    (tmp_path / "rules.toml").write_text("[[wish]]\n")
    arguments = ("--history", "h.db", "--alerts", "rules.toml")
    assert error_of(capsys, *arguments) == (2, "alerts-invalid")


@pytest.mark.parametrize("port", ["-1", "65536", "http", "١"])
def test_a_port_that_is_none(port, capsys):
    assert error_of(capsys, "--port", port) == (2, "option-invalid")


def test_ctrl_c_ends_it_without_an_error(history, monkeypatch, capsys):
    def interrupted(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr("torchgauge.live.server.LiveServer.serve_forever", interrupted)
    assert main(["serve", "--store", "h.db", "--port", "0"]) == 0
    captured = capsys.readouterr()
    assert re.fullmatch(r"torchgauge serves http://127\.0\.0\.1:\d+/ .*\n", captured.out)
    assert captured.err == "torchgauge: stopped\n"


def test_what_is_served(history, monkeypatch, tmp_path):
    """A history and a folder without monitors; without a history the folder alone."""
    sites = []

    def served(self, *_):
        sites.append(self.site)

    monkeypatch.setattr("torchgauge.live.server.LiveServer.serve_forever", served)
    folder = str(tmp_path / "monitors")
    assert main(["serve", "--history", "h.db", "--port", "0"]) == 0
    assert main(["serve", "--history", "h.db", "--monitor", folder, "--port", "0"]) == 0
    monkeypatch.setenv("TORCHGAUGE_STORE", str(tmp_path / "none.db"))
    assert main(["serve", "--monitor", folder, "--port", "0"]) == 0
    assert [(bool(site.history), bool(site.monitors)) for site in sites] == [
        (True, False),
        (True, True),
        (False, True),
    ]
    assert sites[1].monitors.rows() == {"folder": folder, "rows": [], "error": None}
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))
    assert main(["serve", "--monitor", "--port", "0"]) == 0
    assert main(["serve", "--monitor", ".", "--port", "0"]) == 0
    shown = [site.monitors.rows()["folder"] for site in sites[3:]]
    assert shown == [str(tmp_path / "state" / "monitors"), str(tmp_path)]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_real_command(history, number):
    """It answers, with an open connection too it ends at once with 0, and leaves the port free."""
    command = [sys.executable, "-m", "torchgauge", "serve", "--history", "h.db", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/api/fleet")
            assert connection.getresponse().status == 200
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    connection.close()
    assert (process.returncode, errors) == (0, "torchgauge: stopped\n")
    with socket.create_server(("127.0.0.1", port)):
        pass
