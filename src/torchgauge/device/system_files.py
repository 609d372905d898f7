"""Reads the Linux kernel's files in /proc and /sys; an absent file reads as None."""

from __future__ import annotations

import re
from pathlib import Path


class SystemFiles:
    """Reads /proc and /sys below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        """Return a file's text without the white space around it; None where it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def texts(self, pattern: str) -> dict[str, str]:
        """Return the readable files that match, by path below the root."""
        texts_by_path = {}
        for file in sorted(self.root.glob(pattern)):
            name = str(file.relative_to(self.root))
            if (text := self.text(name)) is not None:
                texts_by_path[name] = text
        return texts_by_path

    def numbers(self, path: str) -> dict[str, int]:
        """Return a file of `name value` lines, such as /proc/meminfo (in its own units)."""
        values = {}
        for line in (self.text(path) or "").splitlines():
            words = line.replace(":", " ").split()
            if len(words) >= 2 and words[1].isdecimal():
                values[words[0]] = int(words[1])
        return values

    def pressure(self, resource: str) -> float | None:
        """Return the fraction of the last 10 s in which some task waited for `resource` (PSI)."""
        for line in (self.text(f"proc/pressure/{resource}") or "").splitlines():
            kind, *fields = line.split() or [""]
            values = dict(field.split("=", 1) for field in fields if "=" in field)
            if kind == "some" and re.fullmatch(r"\d+(\.\d+)?", values.get("avg10", ""), re.ASCII):
                return float(values["avg10"]) / 100
        return None

    def cgroups(self, controller: str = "cpu", process: int | str = "self") -> list[Path]:
        """Return the folders that may limit a process: its cgroup and those above it."""
        mount = self.root / "sys/fs/cgroup"
        folders = [mount]
        for line in (self.text(f"proc/{process}/cgroup") or "").splitlines():
            _, _, controllers_and_path = line.partition(":")
            controllers, _, path = controllers_and_path.partition(":")
            if controllers and controller not in controllers.split(","):
                continue
            parts = [part for part in path.split("/") if part not in ("", "..")]
            own = mount / controller if controllers else mount
            folders += [own.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
        return folders
