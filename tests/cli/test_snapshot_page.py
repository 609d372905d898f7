"""`torchgauge snapshot --html`, and the page of what grew between two."""

import pickle

from tests.support.snapshots import BASE, LOG, MIB, block, segment, whole

from torchgauge.cli.main import main


def written(path, blocks):
    held = [block(BASE + at * MIB, MIB, stack=LOG) for at in range(blocks)]
    path.write_bytes(pickle.dumps(whole([segment(BASE, *held)])))
    return str(path)


def test_pages_of_a_snapshot_and_of_growth(tmp_path, capsys):
    before, after = (written(tmp_path / f"{at}.pickle", 1 + 4 * at) for at in range(2))
    page, out = tmp_path / "page.html", tmp_path / "out"
    given = ["--html", str(page), "--output-dir", str(out), "--format", "html,json"]
    assert main(["snapshot", after, *given]) == 0
    assert page.read_text() == (out / "snapshot.html").read_text()
    assert "<title>1.pickle – torchgauge</title>" in page.read_text()
    assert main(["compare", before, after, "--html", str(page)]) == 0
    assert "+4.19 MB" in page.read_text()
    assert main(["report", str(out / "snapshot.json"), "--html", str(page)]) == 0
    assert page.read_text() == (out / "snapshot.html").read_text()
    capsys.readouterr()
