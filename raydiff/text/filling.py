"""Prompt templates: plain text with fields in braces."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from raydiff.errors import UsageError, invalid

TEXT = "text"


@dataclass(frozen=True)
class Template:
    """Text with `{text}` in it once, and possibly other fields; `{{` and `}}` are braces."""

    source: str
    name: str = "template"
    """What to call it in errors."""

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            UsageError: it is malformed, or has not exactly one `{text}`.
        """
        count = [name for _, name in self._pieces].count(TEXT)
        if count != 1:
            raise self._wrong("exactly one {text}", f"{count} of them in {self.source!r}")

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Names of its other fields, each once, in order."""
        names = (name for _, name in self._pieces if name not in (None, TEXT))
        return tuple(dict.fromkeys(str(name) for name in names))

    def fill(self, text: str) -> str:
        """The template, which has no other fields, with a text in it. Braces in it are text."""
        return "".join(literal + (text if name else "") for literal, name in self._pieces)

    def bind(self, values: Mapping[str, str]) -> Template:
        """The template with its other fields filled in."""
        known = {TEXT: f"{{{TEXT}}}", **{name: escaped(value) for name, value in values.items()}}
        filled = (escaped(text) + (known[name] if name else "") for text, name in self._pieces)
        return Template("".join(filled), self.name)

    @cached_property
    def _pieces(self) -> list[tuple[str, str | None]]:
        """Literals, each with the field that follows it, if any."""
        try:
            parsed = list(string.Formatter().parse(self.source))
        except ValueError as error:
            raise self._wrong("fields like {text}", f"{self.source!r} ({error})") from error
        for _, name, form, conversion in parsed:
            if name is not None and (not name.isidentifier() or form or conversion):
                raise self._wrong("fields like {text}", f"{{{name}}} in {self.source!r}")
        return [(literal, name) for literal, name, _, _ in parsed]

    def _wrong(self, expected: str, got: str) -> UsageError:
        remedy = "Write {{ and }} for braces."
        return UsageError(f"{self.name}: expected {expected}, got {got}. {remedy}", self.name)


def escaped(text: str) -> str:
    """The text as a template would have it."""
    return text.replace("{", "{{").replace("}", "}}")


def require_fields(template: Template, known: tuple[str, ...]) -> None:
    """Refuse a template with other fields than `known`.

    Raises:
        UsageError: it has some.
    """
    unknown = [name for name in template.fields if name not in known]
    if unknown:
        expected = " or ".join(f"{{{name}}}" for name in (TEXT, *known))
        remedy = "Other fields are columns that --pass-columns names."
        message = invalid(template.name, expected=expected, got=f"{{{unknown[0]}}}", remedy=remedy)
        raise UsageError(message, template.name)
