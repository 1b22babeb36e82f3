"""Bytes that are no characters, in vocabularies that spell rare characters byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tokenizers


class ByteFallback:
    """Decodes runs of byte tokens such that a longer run begins as the shorter one did.

    The tokenizers' own decoder turns a whole run into U+FFFD once one byte of it is wrong, even
    what was a line end before; a stream may have shown that already.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._bytes: dict[int, int] = {}
        self._known: frozenset[int] = frozenset()
        if "ByteFallback" in repr(backend.decoder):
            for byte in range(256):
                number = backend.token_to_id(f"<0x{byte:02X}>")
                if number is not None:
                    self._bytes[number] = byte
            self._known = frozenset(backend.get_vocab(with_added_tokens=True).values())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        if self._bytes:  # ids of no token have no text and interrupt no run of bytes
            ids = [i for i in ids if i in self._known]
        text = self._raw(ids)
        if self._bytes:
            for start, end, run in reversed(list(self._broken(ids))):
                begins, ends = len(self._raw(ids[:start])), len(self._raw(ids[:end]))
                text = text[:begins] + run.decode("utf-8", "replace") + text[ends:]
        return text

    def _raw(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def _broken(self, ids: Sequence[int]) -> Iterator[tuple[int, int, bytes]]:
        """Runs of byte tokens, with their ends, that are no UTF-8."""
        start = 0
        while start < len(ids):
            end = start
            while end < len(ids) and ids[end] in self._bytes:
                end += 1
            run = bytes(self._bytes[i] for i in ids[start:end])
            if "\ufffd" in run.decode("utf-8", "replace"):
                yield start, end, run
            start = end + 1
