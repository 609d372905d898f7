"""Shows a record's fields, which have names and types and no texts of their own."""

from __future__ import annotations

from typing import Any

import griffe

# Of a class its bases are known by name alone.
BASES = {"Record", "Exported", "NamedTuple"}


class RecordFields(griffe.Extension):
    """Adds the fields of every Record to what its docstring says."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Write one line for each field, as the class has it."""
        if cls.docstring is None or not BASES & {str(base) for base in cls.bases}:
            return
        fields = [
            f"{name}: {one.annotation}" + ("" if one.value is None else f" = {one.value}")
            for name, one in cls.attributes.items()
            if one.annotation is not None and "property" not in one.labels
        ]
        if not fields:
            return
        cls.docstring.value += "\n\n```python\n" + "\n".join(fields) + "\n```"
