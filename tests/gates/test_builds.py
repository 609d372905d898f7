"""The builds of a gate and a comparison that a request names."""

import pytest

from torchgauge.errors import InputError
from torchgauge.gates import builds as compared_outputs
from torchgauge.gates import builds as target_gate
from torchgauge.gates.builds import request_build, revision_build, side_request
from torchgauge.gates.gate_options import BaseRequest, GateOptions
from torchgauge.progress import Silent
from torchgauge.targets.builds.revision import Revision
from torchgauge.targets.target import TargetRequest

MODEL = "torchvision:resnet18"


@pytest.fixture
def program(tmp_path):
    """Return the request of a program with its record, which a revision has too."""
    for folder in ("now", "base"):
        for name in ("model.pte", "model.etrecord"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name).touch()
    now = tmp_path / "now"
    return TargetRequest(str(now / "model.pte"), etrecord=now / "model.etrecord")


def test_a_revision_has_the_record_of_its_own_program(program, tmp_path):
    root, tree = tmp_path / "now", tmp_path / "base"
    build = revision_build(request_build(program), Revision("main", "0" * 40, root, tree))
    assert build.source.target.spec == str(tree / "model.pte")
    assert build.source.target.etrecord == tree / "model.etrecord"


def test_a_record_is_of_the_one_program_among_two_targets(program):
    assert side_request(program, MODEL).etrecord is None
    assert side_request(program, program.spec) == program
    with pytest.raises(InputError) as caught:
        side_request(program, "other.pte")
    assert caught.value.id == "option-conflict"


def test_a_gate_and_a_comparison_of_outputs_drop_the_record_for_a_model(program, monkeypatch):
    monkeypatch.setattr(target_gate, "gate_builds", lambda base, *_: base.source.target)
    base = target_gate.gate_targets(
        program, BaseRequest(target=MODEL), GateOptions.of_comparison(None), Silent()
    )
    assert (base.spec, base.etrecord) == (MODEL, None)
    asked = []

    def ask(_work, _kind, source, _options):
        asked.append(source)
        raise KeyboardInterrupt

    monkeypatch.setattr(compared_outputs, "ask", ask)
    with pytest.raises(KeyboardInterrupt):
        compared_outputs.with_outputs(None, program, MODEL, Silent())
    (source,) = asked
    assert (source.target.spec, source.target.etrecord) == (MODEL, None)
    assert source.other.target == program
