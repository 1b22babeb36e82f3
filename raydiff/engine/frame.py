"""Frame: the positions of one request that are denoised together, cut into blocks that commit from
left to right. Knows neither torch nor the model.

Shapes: F positions of the frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from raydiff.decoding import Decoding
from raydiff.spec import ModelSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """How a request's text is cut into frames and blocks, by the model's attention."""

    frame_length: int
    block_length: int
    aligned: bool
    """Frames begin at multiples of their length, counted from the prompt's first token, so that
    the first may begin inside the prompt."""

    def lead(self, prompt_length: int, done: int) -> int:
        """Prompt tokens at the beginning of the frame after `done` generated tokens."""
        return (prompt_length + done) % self.frame_length if self.aligned else 0


def geometry(spec: ModelSpec, decoding: Decoding) -> Geometry:
    """The geometry of resolved decoding parameters."""
    assert decoding.max_tokens is not None
    assert decoding.block_length is not None
    frame = {"full": decoding.max_tokens, "block-causal": spec.block_length}
    return Geometry(
        frame_length=frame.get(spec.attention, decoding.block_length),
        block_length=decoding.block_length,
        aligned=spec.attention == "block-causal",
    )


def undivided(spec: ModelSpec, decoding: Decoding) -> Geometry:
    """The same with frames of one block each."""
    shape = geometry(spec, decoding)
    return replace(shape, block_length=shape.frame_length)


def filling(spec: ModelSpec, length: int, rng: np.random.Generator) -> Ints:
    """(length,) noise: the mask token, or random tokens."""
    if spec.noise != "uniform":
        return np.full(length, spec.mask_id, dtype=np.int64)
    draws = rng.random(length, dtype=np.float32)
    return (draws * np.float32(spec.vocab_size)).astype(np.int64)


class Frame:
    """Which tokens stand where, and which positions are open; kept explicitly, never read off
    the tokens, so a literal mask token in a prompt is text.
    """

    def __init__(self, shape: Geometry, start: int, lead: Ints, filling: Ints) -> None:
        """`start` is the sequence index of the first position, `lead` the prompt tokens there,
        `filling` (F,) what stands at positions before they are denoised.
        """
        self.start = start
        self.lead = len(lead)
        self._block_length = shape.block_length
        self.tokens: Ints = filling.copy()
        self.open: Bools = np.ones(len(filling), dtype=np.bool_)
        self.given: Bools = np.zeros(len(filling), dtype=np.bool_)
        self.give(slice(0, self.lead), lead)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def end(self) -> int:
        """Sequence index after the last position."""
        return self.start + len(self)

    def give(self, where: slice, tokens: Ints | int) -> None:
        """Close positions for good."""
        self.tokens[where] = tokens
        self.open[where] = False
        self.given[where] = True

    def block(self) -> slice:
        """The first block with an open position; empty when none is open."""
        if not self.open.any():
            return slice(len(self), len(self))
        begin = int(np.argmax(self.open)) // self._block_length * self._block_length
        return slice(begin, min(begin + self._block_length, len(self)))

    def within(self, block: slice) -> Bools:
        """(F,) bool: the positions of a block."""
        mask = np.zeros(len(self), dtype=np.bool_)
        mask[block] = True
        return mask

    def close(self, where: Bools, tokens: Ints) -> None:
        """Commit `tokens` (F,) where `where` (F,) is True."""
        self.tokens[where] = tokens[where]
        self.open &= ~where

    def closed_run(self) -> int:
        """Length of the closed run at the beginning."""
        return int(np.argmax(self.open)) if self.open.any() else len(self)

    def first(self, ids: tuple[int, ...], limit: int) -> int | None:
        """Place of the first closed position, prompt tokens left out, below `limit` whose token is
        one of `ids`.
        """
        part = slice(self.lead, max(0, limit))
        places = np.flatnonzero(_is_one_of(self.tokens[part], ids) & ~self.open[part])
        return self.lead + int(places[0]) if len(places) else None


def _is_one_of(tokens: Ints, ids: tuple[int, ...]) -> Bools:
    """`np.isin`, which takes several times as long for the few ids that end a text."""
    found: Bools = tokens == ids[0]
    for token in ids[1:]:
        found |= tokens == token
    return found
