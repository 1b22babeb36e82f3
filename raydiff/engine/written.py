"""Written: what a canvas has written, and how likely its tokens were when decided. Numpy only.

Shapes: F positions of the frame, K alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydiff.engine.frame import Bools, Floats, Frame, Ints
from raydiff.engine.transcript import Transcript
from raydiff.request import GenerationRequest, TokenLogprob
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What a forward says of a frame: log-probabilities under the model's own distribution."""

    candidates: Ints
    """(F,) the tokens drawn."""
    candidate: Floats
    """(F,) their log-probabilities."""
    best: Floats
    """(F,) those of the tokens that an early stop commits in place of the candidates."""
    top_ids: Ints
    """(F, K) the likeliest tokens, likeliest first."""
    top: Floats
    """(F, K) their log-probabilities."""


class Likelihoods:
    """The log-probability of each decided token; given tokens have 0 and no alternatives."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self._made: list[TokenLogprob] = []
        self._forward: Scored | None = None
        self.begin(0)

    def begin(self, length: int) -> None:
        """A frame of so many positions begins."""
        self._own: Floats = np.zeros(length, dtype=np.float32)
        self._top_ids: Ints = np.full((length, self._top), -1, dtype=np.int64)
        self._top_own: Floats = np.full((length, self._top), -np.inf, dtype=np.float32)

    def see(self, forward: Scored) -> None:
        """Take in the forward whose tokens are about to be decided."""
        self._forward = forward

    def decide(self, where: Bools, tokens: Ints) -> None:
        """The last forward decided `tokens` (F,) where `where` (F,)."""
        seen = self._forward
        if seen is None or not where.any():
            return
        own = np.where(tokens == seen.candidates, seen.candidate, seen.best)
        self._own[where] = own[where]
        top = min(self._top, seen.top.shape[1])
        self._top_ids[where, :top] = seen.top_ids[where, :top]
        self._top_own[where, :top] = seen.top[where, :top]

    def until(self, count: int, ids: Sequence[int], frame_at: int) -> list[TokenLogprob]:
        """Those of the first `count` of the committed tokens `ids`; the frame's first position is
        at generated offset `frame_at`."""
        for offset in range(len(self._made), count):
            self._made.append(self._of(ids[offset], offset - frame_at))
        return self._made[:count]

    def _of(self, token: int, place: int) -> TokenLogprob:
        top = zip(self._top_ids[place].tolist(), self._top_own[place].tolist(), strict=True)
        return TokenLogprob(
            token_id=token,
            logprob=float(self._own[place]),
            top=tuple((number, value) for number, value in top if value > -np.inf),
        )


class Written:
    """The tokens of finished frames, and the committed text with what is said of it."""

    def __init__(
        self, request: GenerationRequest, spec: ModelSpec, tokenizer: Tokenizer, max_tokens: int
    ) -> None:
        d = request.decoding
        self._end_ids = spec.end_ids
        self._max_tokens = max_tokens
        self._eager = request.stream or bool(d.stop)
        self.transcript = Transcript(tokenizer, () if request.choices else d.stop, d.min_tokens)
        asked = request.logprobs
        self.likelihoods = None if asked is None else Likelihoods(asked)
        self._told = 0
        self.restart()

    def restart(self) -> None:
        """Forget the tokens, but not what a stream has seen."""
        self.done: list[int] = []
        self.transcript.restart()
        if self.likelihoods is not None:
            self.likelihoods.restart()

    def __len__(self) -> int:
        """Tokens of finished frames."""
        return len(self.done)

    def limit(self, frame: Frame) -> int:
        """Place in the frame where `max_tokens` ends, which may lie past it."""
        return frame.lead + self._max_tokens - len(self.done)

    def first_end(self, frame: Frame) -> int | None:
        """Place in the frame of the first committed end token."""
        return frame.first(self._end_ids, self.limit(frame))

    def close_after_end(self, frame: Frame) -> None:
        """Nothing after a committed end token is denoised any more."""
        end = self.first_end(frame)
        if end is not None:
            after = frame.open.copy()
            after[: end + 1] = False
            frame.close(after, np.full(len(after), self._end_ids[0]))

    def begin(self, frame: Frame) -> None:
        """A frame begins."""
        if self.likelihoods is not None:
            self.likelihoods.begin(len(frame))

    def decided(self, frame: Frame, where: Bools) -> None:
        """The last forward decided the frame's tokens where `where` (F,)."""
        if self.likelihoods is not None:
            self.likelihoods.decide(where, frame.tokens)

    def ends(self, frame: Frame) -> bool:
        """Take the closed run at the frame's beginning, where somebody wants it now; whether an
        end token or a stop string in it ends the text."""
        if not self._eager and frame.open.any():
            return False
        lead, have = frame.lead, len(self.transcript)
        closed = min(frame.closed_run(), self.limit(frame))
        end = self.first_end(frame)
        until = closed if end is None else min(closed, end)
        begin = lead + max(0, have - len(self.done))
        new = [*self.done[have:], *frame.tokens[begin:until].tolist()]
        ended = self.transcript.extend(new) or (end is not None and end <= closed)
        if self.likelihoods is not None:
            known = min(len(self.transcript), len(self.done) + until - lead)
            self.likelihoods.until(known, self.transcript.all_ids, len(self.done) - lead)
        return ended

    def choose(self, choice: Sequence[int]) -> None:
        """The text is this, as far as it is not there yet."""
        self.transcript.extend(choice[len(self.transcript) :])

    def finish_frame(self, frame: Frame) -> bool:
        """All of the frame is decided; whether `max_tokens` are written."""
        self.done.extend(frame.tokens[frame.lead :].tolist())
        del self.done[self._max_tokens :]
        return len(self.done) >= self._max_tokens

    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """Of all tokens of the text, where the request asks for them."""
        if self.likelihoods is None:
            return None
        ids = self.transcript.token_ids
        return tuple(self.likelihoods.until(len(ids), ids, 0))

    def take_logprobs(self, tokens: int) -> tuple[TokenLogprob, ...]:
        """Of the tokens up to the `tokens`th that were not taken before."""
        if self.likelihoods is None or tokens <= self._told:
            return ()
        first, self._told = self._told, tokens
        return tuple(self.likelihoods.until(tokens, self.transcript.all_ids, 0)[first:])
