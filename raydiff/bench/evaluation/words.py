"""Words and n-grams of texts in any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # iteration mark, closing mark, zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # small Katakana
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),  # Han, extensions
)

Words = tuple[str, ...]


def words(text: str) -> Words:
    """The words of a text in lower case, without punctuation.

    A word is a run of letters, digits and the marks on them; in scripts that put no spaces between
    words each letter is one. Of ASCII text these are the tokens of `rouge-score`.
    """
    lowered = text.lower()
    if lowered.isascii():
        return tuple(_ASCII_WORD.findall(lowered))
    return tuple(_words(unicodedata.normalize("NFC", lowered)))


def _words(text: str) -> Iterator[str]:
    word = ""
    for letter in text:
        kind = unicodedata.category(letter)[0]
        if kind == "M":
            word += letter if word else ""
        elif kind not in "LN":
            yield from filter(None, [word])
            word = ""
        elif _unspaced(letter) or (word and _unspaced(word[0])):
            yield from filter(None, [word])
            word = letter
        else:
            word += letter
    yield from filter(None, [word])


def _unspaced(letter: str) -> bool:
    code = ord(letter)
    return code >= _UNSPACED[0][0] and any(low <= code <= high for low, high in _UNSPACED)


def ngrams(of: Sequence[str], size: int) -> list[Words]:
    """All runs of `size` words, in order; none of fewer words."""
    return [tuple(of[i : i + size]) for i in range(len(of) - size + 1)]
