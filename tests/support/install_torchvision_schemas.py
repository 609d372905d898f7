"""Installs torchvision_schemas.py into the environment of the Python that runs this file.

A `.pth` line imports it at every start of the interpreter, so that child processes have it too.
Where torchvision's own compiled operators load, there is nothing to install.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

MODULE = "torchvision_schemas"


def operators_load() -> bool:
    """Whether torchvision has its compiled operators: those of the stand-ins do not run."""
    code = "import torch, torchvision; torchvision.ops.nms(torch.ones(1, 4), torch.ones(1), 0.5)"
    return not subprocess.run([sys.executable, "-c", code], capture_output=True).returncode


def main() -> None:
    if operators_load():
        print("torchvision's compiled operators load")
        return
    site_packages = Path(sysconfig.get_path("purelib"))
    source = Path(__file__).with_name(f"{MODULE}.py")
    shutil.copyfile(source, site_packages / source.name)
    (site_packages / f"{MODULE}.pth").write_text(f"import {MODULE}\n")
    print(f"Wrote {site_packages / source.name} and {MODULE}.pth")


if __name__ == "__main__":
    main()
