"""What a simulated model writes: letters by a hash of prompt, position and the row's own draws.

Shapes: R rows, W positions.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from raydiff.simulated.shape import END, LETTERS, SPACE

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_WORD = 6
"""One character in so many is a space."""
_MOST = np.float32(1 - 2**-20)
"""So that rounding leaves a confidence below 1."""


def digest(prompt: Ints) -> int:
    """64 bits that stand for a prompt."""
    return int.from_bytes(blake2b(prompt.tobytes(), digest_size=8).digest(), "little")


def hashes(keys: Hashes, positions: Ints, uniforms: Floats) -> Hashes:
    """(R, W) of the rows' keys (R,), their positions and their own draws (R, W), and of nothing
    else: a row's text does not depend on the rows beside it."""
    drawn = _mixed(uniforms.view(np.uint32).astype(np.uint64))
    return _mixed(keys[:, None] ^ _mixed(positions.astype(np.uint64)) ^ drawn)


def tokens(hashes: Hashes, end_chance: float, end_forbidden: npt.NDArray[np.bool_]) -> Ints:
    """(R, W) int64: letters and spaces, and the end token with `end_chance`."""
    places = hashes % np.uint64(len(LETTERS))
    letters = places.astype(np.int64) + LETTERS.start
    spaced = np.where(_mixed(hashes) % np.uint64(_WORD) == 0, SPACE, letters)
    ends = (fractions(hashes) < end_chance) & ~end_forbidden
    written: Ints = np.where(ends, END, spaced)
    return written


def confidence(hashes: Hashes) -> Floats:
    """(R, W) made-up probabilities of the tokens, in [1/2, 1)."""
    share = np.minimum(fractions(_mixed(~hashes)), _MOST)
    return (0.5 + share / 2).astype(np.float32)


def alternatives(tokens: Ints, confidence: Floats, count: int) -> tuple[Ints, Floats]:
    """(R, W, count) tokens, likeliest first, and their probabilities: the token itself, then
    letters that share what is left, each half of what the one before has."""
    rank = np.arange(count)
    first = np.where(np.isin(tokens, LETTERS), tokens - LETTERS.start, 0)
    letters = (first[..., None] + rank) % len(LETTERS) + LETTERS.start
    rest = (1 - confidence[..., None]) * np.float32(2) ** -rank.astype(np.float32)
    mine = np.broadcast_to(rank == 0, letters.shape)
    ids: Ints = np.where(mine, tokens[..., None], letters)
    return ids, np.where(mine, confidence[..., None], rest).astype(np.float32)


def fractions(hashes: Hashes) -> Floats:
    """As numbers in [0, 1)."""
    return ((hashes >> np.uint64(40)) * 2.0**-24).astype(np.float32)


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64's finalizer (Steele, Lea and Flood 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
