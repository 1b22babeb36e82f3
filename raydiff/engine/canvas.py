"""Canvas: all the decoding state of one request.

Positions of the current block are *open* (to be denoised) or closed; which is which is kept
explicitly, never read off the tokens, so a literal mask token in a prompt is text. Pinned
positions are closed from the start and never change. Knows neither torch nor the model.

Shapes: L positions of the block, W of them live.
"""

from __future__ import annotations

import secrets
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from raydiff.diffusion.schedule import quotas
from raydiff.engine.transcript import Transcript
from raydiff.request import FinishReason, GenerationRequest
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


class State(Enum):
    """Where a canvas stands."""

    WAITING = auto()
    """Not admitted, or sent back: nothing of it is on the device."""
    ENCODE_PROMPT = auto()
    DENOISE = auto()
    ENCODE_BLOCK = auto()
    """The block is final and must join the cache before the next begins."""
    FINISHED = auto()


class Canvas:
    """The mutable twin of a frozen request."""

    def __init__(self, request: GenerationRequest, spec: ModelSpec, tokenizer: Tokenizer) -> None:
        d = request.decoding
        assert d.max_tokens is not None
        assert d.block_length is not None
        self.request = request
        self.spec = spec
        self.max_tokens: int = d.max_tokens
        self.block_length: int = d.block_length
        self.cached = d.cache != "none" and spec.cache != "none"
        self._seed = d.seed if d.seed is not None else secrets.randbits(63)
        self._pins = dict(request.pinned)
        self.submitted_s = 0.0
        self.first_forward_s: float | None = None
        self.first_commit_s: float | None = None
        self.transcript = Transcript(tokenizer, d.stop)
        self.reset()

    def reset(self) -> None:
        """Back to before the first forward; the same seed gives the same tokens again."""
        self.state = State.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.forwards = 0
        self.done: list[int] = []
        self._rng = np.random.Generator(np.random.Philox(self._seed))
        self.transcript.restart()
        self._begin_block()

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def context_length(self) -> int:
        """Positions before the block: the prompt and the finished blocks."""
        return self.prompt_length + len(self.done)

    @property
    def reserved_context(self) -> int:
        """The largest `context_length` this request can reach."""
        blocks = -(-self.max_tokens // self.block_length)
        return self.prompt_length + (blocks - 1) * self.block_length

    def positions_from(self, offset: int) -> int:
        """Model position of the generated token at `offset`."""
        start = self.spec.target_position
        return (self.prompt_length if start is None else start) + offset

    @property
    def at_least(self) -> int:
        """Positions that the next forward commits at least."""
        return self._quotas[self._step] if self._step < len(self._quotas) else 1

    @property
    def threshold(self) -> float:
        """Confidence from which the next forward commits; infinite under the quota policy."""
        d = self.request.decoding
        return float("inf") if d.policy == "quota" or d.threshold is None else d.threshold

    def end_forbidden(self) -> Bools:
        """(L,) where the end token may not be predicted: `ignore_eos`, `min_tokens`, or a
        pinned token still to come."""
        d = self.request.decoding
        offsets = len(self.done) + np.arange(self.block_length)
        last_pin = max(self._pins, default=-1)
        return np.asarray(d.ignore_eos | (offsets < d.min_tokens) | (offsets < last_pin))

    def live(self) -> Bools:
        """(L,) positions that the next forward computes and attends to."""
        live: Bools = np.ones(self.block_length, dtype=np.bool_)
        if self.spec.drop_after_end:
            ends = np.flatnonzero(np.isin(self.tokens, self.spec.end_ids) & ~self.open)
            live[ends[0] + 1 if len(ends) else self.block_length :] = False
        return live

    def uniforms(self) -> Floats:
        """(L,) one draw a position from the row's own generator, for the next forward."""
        return self._rng.random(self.block_length, dtype=np.float32)

    def commit(self, tokens_W: Ints, commit_W: Bools) -> None:
        """Make `tokens_W` final where `commit_W`, then close what can no longer count.

        The arrays cover the block's first W positions.
        """
        width = len(commit_W)
        commit_W = commit_W & self.open[:width]
        self.tokens[:width][commit_W] = tokens_W[commit_W]
        self.open[:width] &= ~commit_W
        self.forwards += 1
        self._step += 1
        self._close_after_end()
        self._advance()

    def finish(self, reason: FinishReason, error: str | None = None) -> None:
        """End the request here."""
        self.finish_reason = reason
        self.error = error
        self.state = State.FINISHED

    def block_encoded(self) -> None:
        """The finished block is in the cache: begin the next."""
        self._begin_block()
        self.state = State.DENOISE

    def _begin_block(self) -> None:
        base = len(self.done)
        length = self.block_length
        self.tokens: Ints = np.full(length, self.spec.mask_id, dtype=np.int64)
        self.open: Bools = np.ones(length, dtype=np.bool_)
        beyond = max(0, self.max_tokens - base)
        self._close(slice(beyond, None), self.spec.end_ids[0])
        for offset, token in self._pins.items():
            if base <= offset < min(base + length, self.max_tokens):
                self._close(slice(offset - base, offset - base + 1), token)
        steps = self.request.decoding.steps
        self._quotas = quotas(int(self.open.sum()), steps) if steps else ()
        self._step = 0

    def _close(self, where: slice, token: int) -> None:
        self.tokens[where] = token
        self.open[where] = False

    def _first_end(self) -> int | None:
        """Offset in the block of the first committed end token."""
        is_end = np.isin(self.tokens, self.spec.end_ids) & ~self.open
        limit = self.max_tokens - len(self.done)
        ends = np.flatnonzero(is_end[:limit])
        return int(ends[0]) if len(ends) else None

    def _close_after_end(self) -> None:
        end = self._first_end()
        if end is not None:
            after = self.open.copy()
            after[: end + 1] = False
            self.tokens[after] = self.spec.end_ids[0]
            self.open &= ~after

    def _advance(self) -> None:
        """Grow the transcript by the closed run at the block's start; see whether that ends it."""
        if self.request.stream or self.request.decoding.stop or not self.open.any():
            self._extend_transcript()
        if self.state is not State.FINISHED and not self.open.any():
            self._finish_block()

    def _extend_transcript(self) -> None:
        closed = int(np.argmax(self.open)) if self.open.any() else self.block_length
        closed = min(closed, self.max_tokens - len(self.done))
        end = self._first_end()
        stop = closed if end is None else min(closed, end)
        ids = [*self.done, *self.tokens[:stop].tolist()]
        if self.transcript.extend(ids) or (end is not None and end <= closed):
            self.transcript.close()
            self.finish("stop")

    def _finish_block(self) -> None:
        self.done.extend(int(t) for t in self.tokens)
        if len(self.done) >= self.max_tokens:
            self.done = self.done[: self.max_tokens]
            self.transcript.close()
            self.finish("length")
        else:
            self.state = State.ENCODE_BLOCK if self.cached else State.DENOISE
            if not self.cached:
                self._begin_block()
