"""torch._dynamo is imported when it is used, and is the real one then."""

import subprocess
import sys

import pytest

ASIDE = "from torchgauge.targets.loaders.importing_torchvision import dynamo_later\nimport sys\n"
# torch has it so.
LAZY = """
import importlib
def __getattr__(name):
    if name == "_dynamo":
        return importlib.import_module("torch._dynamo")
    raise AttributeError(name)
"""


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture
def answer(tmp_path):
    """Return what a fresh process prints that has a torch of its own, which tells when it loads."""
    package = tmp_path / "torch" / "_dynamo"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(LAZY)
    (package / "__init__.py").write_text("print('loaded')\nsize = 8\n")
    (package / "config.py").write_text("limit = 3\n")
    (package / "utils.py").write_text(
        "def is_compile_supported(device): return device == 'cuda'\ndef other(): return 5\n"
    )

    def run(code):
        return printed(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{ASIDE}{code}")

    return run


IMPORT = "with dynamo_later():\n    from torch._dynamo.utils import is_compile_supported as asked\n"


def test_nothing_is_loaded_before_the_function_is_called(answer):
    code = "print([name for name in sys.modules if '_dynamo' in name and 'torchg' not in name])\n"
    calls = "print(asked('cuda'), asked('cpu'))"
    assert answer(f"{IMPORT}{code}{calls}") == ["[]", "loaded", "True", "False"]


@pytest.mark.parametrize(
    ("use", "value"),
    [
        ("import torch._dynamo; print(torch._dynamo.size)", "8"),
        ("import torch._dynamo.config as config; print(config.limit)", "3"),
        ("from torch._dynamo import config; print(config.limit)", "3"),
        ("from torch._dynamo.utils import other; print(other())", "5"),
    ],
)
def test_other_uses_get_the_real_one_at_once(answer, use, value):
    stays = "import torch._dynamo; print(torch._dynamo.size, asked('cuda'))"
    assert answer(f"{IMPORT}    {use}\n{stays}") == ["loaded", value, "8", "True"]


def test_one_that_is_loaded_stays(answer):
    before = "import torch._dynamo.utils as real\n"
    same = "print(asked is real.is_compile_supported, sys.modules['torch._dynamo.utils'] is real)"
    assert answer(f"{before}{IMPORT}{same}") == ["loaded", "True", "True"]


@pytest.mark.slow
def test_a_torchvision_model_needs_no_compiler_before_it_is_compiled():
    code = (
        "import sys\n"
        "from torchgauge.targets.loaders.load import load\n"
        "from torchgauge.targets.target import TargetRequest\n"
        "model = load(TargetRequest('torchvision:resnet18')).model\n"
        "print('torch._dynamo' in sys.modules)\n"
        "import torch, torchvision\n"
        "print(torchvision.ops.roi_align.__module__, torch._dynamo.is_compiling())\n"
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item())\n"
    )
    assert printed(code) == ["False", "torchvision.ops.roi_align", "False", "2.0"]
