"""Single tokens as text and bytes, as they stand inside a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

import tokenizers

from raydiff.text.spelling import REPLACEMENT

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that byte-level vocabularies spell as themselves; the others follow from U+0100 on."""


class TokenPieces:
    """Looks pieces up in a vocabulary, each once."""

    def __init__(
        self, backend: tokenizers.Tokenizer, decode: Callable[[Sequence[int]], str]
    ) -> None:
        self._backend = backend
        self._decode = decode
        self._known: dict[int, tuple[str, list[int] | None]] = {}

    def piece(self, token: int) -> tuple[str, list[int] | None]:
        """The text of a token after others, and its bytes. One that is no whole character has a
        text that spells its bytes (`\\xe2`); where those are unknown they are `None`."""
        if token not in self._known:
            self._known[token] = self._look_up(token)
        return self._known[token]

    def _look_up(self, token: int) -> tuple[str, list[int] | None]:
        anchor, before = self._anchor
        text = self._decode([*anchor, token])[len(before) :]
        if REPLACEMENT not in text:
            return text, list(text.encode())
        raw = self._bytes(token)
        if raw is None:
            return text, None
        return raw.decode("utf-8", "backslashreplace"), list(raw)

    @cached_property
    def _anchor(self) -> tuple[list[int], str]:
        """Something to stand before the token: decoders drop a space at a text's beginning."""
        ids = self._backend.encode("a", add_special_tokens=False).ids
        return ids, self._decode(ids)

    def _bytes(self, token: int) -> bytes | None:
        name = self._backend.id_to_token(token)
        if name is None:
            return None
        if match := _BYTE.fullmatch(name):
            return bytes([int(match[1], 16)])
        if "ByteLevel" not in repr(self._backend.decoder):
            return None
        if not all(c in self._alphabet for c in name):
            return None
        return bytes(self._alphabet[c] for c in name)

    @cached_property
    def _alphabet(self) -> dict[str, int]:
        others = [b for b in range(256) if b not in _PRINTABLE]
        spelt = {chr(0x100 + i): b for i, b in enumerate(others)}
        return {**{chr(b): b for b in _PRINTABLE}, **spelt}
