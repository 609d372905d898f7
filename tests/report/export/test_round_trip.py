"""A saved record shows the same text in every format, without torch and on any machine."""

import subprocess
import sys

import pytest
from tests.support import exported_records as records

import torchgauge as tg
from torchgauge.cli import formats

WAYS = [form for form in formats.FORMATS if form not in {"html", "junit"}]


@pytest.mark.parametrize("kind", records.every())
@pytest.mark.parametrize("form", WAYS)
def test_what_is_read_back_renders_the_same(kind, form, tmp_path):
    record = records.every()[kind]
    again = tg.load(record.save(tmp_path / "run.json"))
    assert again == record

    def shown(one):
        try:
            return formats.text(one, form)
        except tg.InputError as error:
            return error.id

    text = shown(record)
    assert shown(again) == text
    trees = {"layers", "operators", "kernels", "speedscope", "folded"}
    lacking = {"ranks": trees, "sweep": trees, "count": {"kernels"}, "training run": trees}
    absent = lacking.get(kind, set())
    assert (text in ("no-tree", "format-unfit")) == (form in absent) or form not in trees


def test_no_way_out_needs_torch(tmp_path):
    path = records.profile().save(tmp_path / "run.json")
    ways = [way for way in WAYS if way != "requests"]  # of a record of load alone
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchgauge.cli.main import main\n"
        f"raise SystemExit(main(['report', {str(path)!r}, '--output-dir', {str(tmp_path)!r},"
        f" '--format', {','.join(ways)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == len(ways)


def test_a_path_gets_the_text(tmp_path):
    profile = records.profile()
    ways = (profile.to_csv, profile.to_markdown, profile.to_openmetrics, profile.to_folded)
    for way in (*ways, profile.to_speedscope):
        (tmp_path / "out").write_bytes(b"old")
        assert way(tmp_path / "out") == (tmp_path / "out").read_bytes().decode()
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
