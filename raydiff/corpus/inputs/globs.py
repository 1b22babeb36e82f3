"""Patterns of file names, as shells know them, with `**` for directories at any depth."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[*?\[{]")


def is_glob(text: str) -> bool:
    """Whether the text has a character that is special in patterns."""
    return _SPECIAL.search(text) is not None


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A regular expression for names that match the pattern, or lie in a directory that does.

    `*` and `?` stand for characters other than `/`, `[ab]` and `[!ab]` for one of a set,
    `{a,b}` for either, and a whole component `**` for any number of directories.
    """
    parts = pattern.strip("/").split("/")
    pieces: list[str] = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pieces.append(".*" if last else "(?:[^/]+/)*")
        else:
            pieces.append(_component(part) + ("" if last else "/"))
    return re.compile("".join(pieces) + r"(?:/.*)?", re.DOTALL)


def _component(part: str) -> str:
    out: list[str] = []
    depth, at = 0, 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "[" and (end := part.find("]", at + 1)) > 0:
            out.append(_character_class(part[at:end]))
            at = end + 1
        elif char == "{" and "}" in part[at:]:
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)))
    return "".join(out)


def _character_class(inside: str) -> str:
    negated = inside[0] in "!^"
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if negated else inside)
    return f"[^/{members}]" if negated else f"[{members}]"
