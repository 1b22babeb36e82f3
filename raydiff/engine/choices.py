"""Choices: the texts that a canvas may become, as far as its commits leave them. Numpy only.

Shapes: N choices left, L positions of the longest choice with its end token, F positions of a
frame, C distinct continuations, P open positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydiff.engine.frame import Bools, Frame, Ints


class Choices:
    """Which of a request's choices are left. After a choice come end tokens only."""

    def __init__(self, choices: Sequence[tuple[int, ...]], end_id: int) -> None:
        """`choices` differ from each other, and hold no end token."""
        self._whole = tuple(choices)
        self._end_id = end_id
        self.length = max(map(len, choices)) + 1
        """Positions that hold any choice and the end token after it."""
        self._tokens: Ints = np.full((len(choices), self.length), end_id, dtype=np.int64)
        for row, choice in zip(self._tokens, choices, strict=True):
            row[: len(choice)] = choice
        self.restart()

    def restart(self) -> None:
        """All are left again."""
        self._left: Ints = np.arange(len(self._whole))
        self.probability = 1.0
        """Of the commits so far, each given those before, among the choices then left."""

    @property
    def decided(self) -> tuple[int, ...] | None:
        """The choice, once a single one is left."""
        return self._whole[self._left[0]] if len(self._left) == 1 else None

    def _at(self, offset: int, length: int) -> Ints:
        """(N, length) the tokens of those left at generated offsets from `offset` on."""
        tokens = np.full((len(self._left), length), self._end_id, dtype=np.int64)
        part = self._tokens[self._left, offset : offset + length]
        tokens[:, : part.shape[1]] = part
        return tokens

    def close_agreed(self, frame: Frame, done: int) -> None:
        """Close the places of the frame, which begins after `done` generated tokens, where all
        that are left have one token."""
        lead = frame.lead
        tokens = self._at(done, len(frame) - lead)
        same = (tokens == tokens[0]).all(axis=0)
        frame.close(np.pad(same, (lead, 0)), np.pad(tokens[0], (lead, 0)))

    def take(self, frame: Frame, done: int, commit: Bools, probability: float) -> None:
        """Leave those that have the frame's tokens where `commit` (F,), which a forward closed
        with `probability`."""
        places = commit[frame.lead :]
        mine = self._at(done, len(places))[:, places]
        self._left = self._left[(mine == frame.tokens[commit]).all(axis=1)]
        self.probability *= probability

    def continuations(self, frame: Frame, done: int) -> Continuations:
        """The distinct ways to fill the frame's open places."""
        places = frame.open[frame.lead :]
        tokens = self._at(done, len(places))[:, places]
        first = np.unique(tokens, axis=0, return_index=True)[1]
        distinct = tokens[np.sort(first)]
        groups = np.stack([_numbered(column) for column in distinct.T], axis=1)
        return Continuations(tokens=distinct, groups=groups)


@dataclass(frozen=True)
class Continuations:
    """What stands at open positions in the choices left, in their order, each once."""

    tokens: Ints
    """(C, P)"""
    groups: Ints
    """(C, P) number of the token among the distinct ones of its position, in order of
    appearance."""


def _numbered(column: Ints) -> Ints:
    """(C,) each value's number, by first appearance."""
    _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
    order: Ints = np.argsort(np.argsort(first))
    return order[inverse]
