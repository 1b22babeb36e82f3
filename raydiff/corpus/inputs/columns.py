"""Which columns a run reads, and what they may be called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydiff.errors import InputError, invalid

ID_COLUMNS = ("doc_id", "id")
"""Names taken as the id column when the caller names none."""

GENERATED_ID = "id"
"""Name of the output's id column when the input has none."""

RESERVED = (
    "source_file",
    "source_row",
    "summary",
    "rewrite",
    "label",
    "label_probability",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "forwards",
    "chunks",
    "truncated",
    "error_type",
    "error_message",
    "attempts",
)
"""Columns of the output that an id or passed column may not be called."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which input columns a run reads. A name with dots may lead into nested columns."""

    text: str
    id: str | None
    """`None` makes ids of the form `file:row`."""
    passed: tuple[str, ...] = ()

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns copied to the output unchanged."""
        return (*([self.id] if self.id else []), *self.passed)

    def param(self, name: str) -> str:
        """The setting that named a column, for messages."""
        if name == self.text:
            return "text_column"
        return "id_column" if name == self.id else "pass_columns"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns that the caller asked for."""

    text: str
    id: str | None = None
    """`None` takes one of `ID_COLUMNS` if there is one."""
    passed: tuple[str, ...] = ()

    def settle(self, available: Sequence[str]) -> Columns:
        """The columns of a run over files with the columns `available`.

        Raises:
            InputError: one is asked for twice.
        """
        id_column = self.id
        if id_column is None:
            id_column = next((c for c in ID_COLUMNS if c in available and c != self.text), None)
        columns = Columns(text=self.text, id=id_column, passed=self.passed)
        _require_distinct_names(columns)
        return columns


def require_free_names(columns: Columns) -> None:
    """Check that carried columns can stand in the output.

    Raises:
        InputError: the output has a column of that name already.
    """
    for name in columns.carried:
        if name in RESERVED or (columns.id is None and name == GENERATED_ID):
            param = "id_column" if name == columns.id else "pass_columns"
            expected = "no column that the output already has"
            raise InputError(
                invalid(param, expected=expected, got=name, remedy="Rename it in the input."),
                param,
            )


def _require_distinct_names(columns: Columns) -> None:
    repeated = {name for name in columns.carried if columns.carried.count(name) > 1}
    if repeated:
        expected = "each column once, the id column not among them"
        raise InputError(
            invalid("pass_columns", expected=expected, got=sorted(repeated)[0]), "pass_columns"
        )


def missing_column(path: str, columns: Columns, name: str, available: Sequence[str]) -> InputError:
    """The error of a file without a needed column, or with several of that name."""
    param = columns.param(name)
    why = "has more than one column" if name in available else "has no column"
    have = ", ".join(available) or "none"
    return InputError(f"{param}: {path} {why} {name!r}; its columns are {have}.", param)
