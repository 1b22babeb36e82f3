"""How to read any file of an input: settled once, kept in the plan, known to every worker."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raydiff.corpus.inputs.columns import Columns
from raydiff.corpus.inputs.formats import Format


@dataclass(frozen=True, kw_only=True)
class InputLayout:
    """Format, columns and types of an input."""

    format: Format
    columns: Columns
    carried: pa.Schema
    """The columns that go to the output, in the order of `columns.carried`, with their types
    there."""
    partitions: pa.Schema
    """Those of them that are in directory names (`key=value`), not in files."""

    @property
    def in_files(self) -> tuple[str, ...]:
        """Carried columns that the files have."""
        return tuple(name for name in self.columns.carried if name not in self.partitions.names)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; in `types` also readable."""
        return {
            "format": self.format,
            "text": self.columns.text,
            "id": self.columns.id,
            "passed": list(self.columns.passed),
            "types": {field.name: str(field.type) for field in self.carried},
            "carried": _encode(self.carried),
            "partitions": _encode(self.partitions),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> InputLayout:
        """The inverse of `to_json`."""
        return cls(
            format=values["format"],
            columns=Columns(text=values["text"], id=values["id"], passed=tuple(values["passed"])),
            carried=_decode(values["carried"]),
            partitions=_decode(values["partitions"]),
        )


def _encode(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _decode(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
