"""Debian's package descriptions as (document, summary) pairs.

The extended description is the document, the one-line synopsis its summary. Format: Debian Policy
5.6.13; `Translation-en` files are what apt fetches from any mirror.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "validation", "test"]

BEGINNING_CHARS = 60
TEST_SHARE = 0.035
VALIDATION_SHARE = 0.015

_NOT_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Pair:
    """One document and its reference summary; `doc_id` is the package name."""

    doc_id: str
    text: str
    summary: str


def read_pairs(paths: Iterable[Path]) -> list[Pair]:
    """All usable pairs of some Translation files: a package's first stanza wins, exact twins are
    dropped.
    """
    pairs: dict[str, Pair] = {}
    seen: set[tuple[str, str]] = set()
    for path in paths:
        for pair in parse_translation(path.read_text(encoding="utf-8")):
            content = (pair.text, pair.summary)
            if pair.doc_id in pairs or content in seen:
                continue
            seen.add(content)
            pairs[pair.doc_id] = pair
    return sorted(pairs.values(), key=lambda pair: pair.doc_id)


def parse_translation(content: str) -> Iterator[Pair]:
    """Yields the pairs of one decompressed Translation file; stanzas without both parts are
    skipped.
    """
    for stanza in content.split("\n\n"):
        name, summary, body = "", "", []
        in_description = False
        for line in stanza.split("\n"):
            if line.startswith(" "):
                if in_description:
                    body.append(line)
                continue
            field, _, value = line.partition(":")
            in_description = field == "Description-en"
            if field == "Package":
                name = value.strip()
            elif in_description:
                summary = value.strip()
        text = unwrap(body)
        if name and summary and text:
            yield Pair(name, text, summary)


def unwrap(lines: Iterable[str]) -> str:
    """Joins an extended description's lines into paragraphs, kept apart by one newline.

    ` .` ends a paragraph; lines indented by two or more spaces are verbatim (lists) and stay lines
    of their own.
    """
    paragraphs: list[str] = []
    open_paragraph = False
    for line in lines:
        content = line[1:].rstrip()
        if content in (".", ""):
            open_paragraph = False
        elif content[0] in " \t":
            paragraphs.append(content.strip())
            open_paragraph = False
        elif open_paragraph:
            paragraphs[-1] += " " + content
        else:
            paragraphs.append(content)
            open_paragraph = True
    return "\n".join(paragraphs)


def beginning(text: str) -> str:
    """The normalised beginning that decides a document's split: lower case, words only, 60
    characters.
    """
    return _NOT_WORD.sub(" ", text.lower()).strip()[:BEGINNING_CHARS]


def split_of(text: str) -> Split:
    """The split of a document. Equal beginnings always fall together, so near-twins never straddle
    two splits.
    """
    digest = hashlib.sha256(beginning(text).encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < TEST_SHARE:
        return "test"
    return "validation" if share < TEST_SHARE + VALIDATION_SHARE else "train"
