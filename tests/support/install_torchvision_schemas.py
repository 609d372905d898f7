"""Installs torchvision_schemas.py into the environment of the Python that runs this file.

A `.pth` line imports it at every start of the interpreter, so that child processes have it too.
"""

import shutil
import sysconfig
from pathlib import Path

MODULE = "torchvision_schemas"


def main() -> None:
    site_packages = Path(sysconfig.get_path("purelib"))
    source = Path(__file__).with_name(f"{MODULE}.py")
    shutil.copyfile(source, site_packages / source.name)
    (site_packages / f"{MODULE}.pth").write_text(f"import {MODULE}\n")
    print(f"Wrote {site_packages / source.name} and {MODULE}.pth")


if __name__ == "__main__":
    main()
