"""Canvas: all the decoding state of one request. Knows neither torch nor the model.

The text is denoised frame by frame, inside a frame block by block (`Frame`). Pinned positions are
closed from the start and never change. Offsets count generated tokens, sequence indices count from
the prompt's first token.

Shapes: F positions of the frame, W of the forward's window.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np

from raydiff.engine.block import Block
from raydiff.engine.choices import Choices, Continuations
from raydiff.engine.frame import Bools, Floats, Ints, filling, geometry, undivided
from raydiff.engine.framing import next_frame
from raydiff.engine.state import State
from raydiff.engine.transcript import Transcript
from raydiff.engine.window import Windows
from raydiff.engine.written import Written
from raydiff.request import FinishReason, GenerationRequest
from raydiff.spec import ModelSpec
from raydiff.text import Tokenizer


class Canvas:
    """The mutable twin of a frozen request."""

    def __init__(self, request: GenerationRequest, spec: ModelSpec, tokenizer: Tokenizer) -> None:
        d = request.decoding
        assert d.max_tokens is not None
        self.request = request
        self.spec = spec
        self.tokenizer = tokenizer
        self.choices = Choices(request.choices, spec.end_ids[0]) if request.choices else None
        self.max_tokens: int = d.max_tokens
        self.geometry = geometry(spec, d)
        self.revising = spec.noise == "uniform" or d.policy in ("edit", "remask")
        if self.choices is not None:
            self.max_tokens = min(d.max_tokens, self.choices.length)
            self.geometry = undivided(spec, replace(d, max_tokens=self.max_tokens))
            self.revising = False
        self.windows = Windows(spec, d)
        self.prompt: Ints = np.array(request.prompt_ids, dtype=np.int64)
        self._seed = d.seed if d.seed is not None else secrets.randbits(63)
        self._pins = dict(request.pinned)
        self.submitted_s = 0.0
        self.handed_over_s = 0.0
        """When it was handed to the engine's thread."""
        self.first_forward_s: float | None = None
        self.first_commit_s: float | None = None
        self.restarts = 0
        """Times that it had to start over for want of room."""
        self.written = Written(request, spec, tokenizer, self.max_tokens)
        self.reset()

    def reset(self) -> None:
        """Back to before the first forward; the same seed gives the same tokens again."""
        self.state = State.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.forwards = 0
        self._set_aside_in: State | None = None
        self.rng = np.random.Generator(np.random.Philox(self._seed))
        self.written.restart()
        if self.choices is not None:
            self.choices.restart()
        self._begin_frame()
        self._end_if_decided()

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def transcript(self) -> Transcript:
        """The committed text."""
        return self.written.transcript

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def block_length(self) -> int:
        return self.geometry.block_length

    @property
    def tokens(self) -> Ints:
        """(F,) the frame's tokens."""
        return self.frame.tokens

    @property
    def open(self) -> Bools:
        """(F,) the frame's positions still to be decided."""
        return self.frame.open

    @property
    def cached(self) -> bool:
        """Whether the row keeps keys and values between forwards."""
        return self.windows.cache != "none"

    @property
    def exact(self) -> bool:
        """Whether what it keeps is exact: prompt and finished frames, encoded once."""
        return self.windows.cache == "exact"

    @property
    def step(self) -> int:
        """Forwards of the block so far."""
        return self.block.step

    def eligible(self) -> Bools:
        """(F,) open positions of the block that commits next."""
        return self.open & self.block.mask

    def revisable(self) -> Bools:
        """(F,) closed positions of that block that a revising policy may change."""
        return ~self.frame.open & ~self.frame.given & self.block.mask

    def uniforms(self, draws: int = 0) -> Floats:
        """(F,), or (draws, F), fresh draws from the row's own generator."""
        shape = (draws, len(self.frame)) if draws else (len(self.frame),)
        return self.rng.random(shape, dtype=np.float32)

    def observe(self, best: Ints, best_confidence: Floats, confidence: Floats) -> None:
        """Remember a forward: most likely tokens, their probabilities and the candidates', (F,)."""
        scored = self.eligible() | self.revisable() if self.revising else self.eligible()
        self.block.history.see(best, best_confidence, confidence, scored)

    def commit(self, tokens: Ints, commit: Bools) -> None:
        """Make `tokens` (F,) final where `commit` (F,), then close what can no longer count."""
        commit = (commit | self._first_of_frame()) & self.eligible()
        stable = self._stable() & ~commit
        self._count_forward()
        self.frame.close(commit, tokens)
        self.frame.close(stable, self.block.history.best)
        self.written.decided(self.frame, commit | stable)
        self.written.close_after_end(self.frame)
        self._next_block()
        self._advance()

    def revise(self, tokens: Ints, is_open: Bools, final: bool) -> None:
        """Take the block's tokens and open positions (F,) as a revising policy left them."""
        self._count_forward()
        mine = self.block.mask & ~self.frame.given
        self.block.history.committed(mine & self.frame.open & ~is_open)
        decided = mine & (self.frame.open | (self.frame.tokens != tokens))
        self.frame.tokens[mine] = tokens[mine]
        self.frame.open[mine] = is_open[mine] & (not final)
        self.written.decided(self.frame, decided & ~self.frame.open)
        if final:
            self.written.close_after_end(self.frame)
            self._next_block()
            self._advance()

    def continuations(self) -> Continuations:
        """What may come to stand at the frame's open positions."""
        assert self.choices is not None
        return self.choices.continuations(self.frame, len(self.written))

    def choose(self, tokens: Ints, commit: Bools, probability: float) -> int:
        """Commit `tokens` (F,) of one of the choices where `commit` (F,) is True, and all that is
        then certain; returns how many positions that closed."""
        assert self.choices is not None
        self._count_forward()
        before = int(self.open.sum())
        self.frame.close(commit, tokens)
        self.choices.take(self.frame, len(self.written), commit, probability)
        self.choices.close_agreed(self.frame, len(self.written))
        closed = before - int(self.open.sum())
        if not self._end_if_decided():
            self._renew_noise()
            self._advance()
            self._pass_over()
        return closed

    def finish(self, reason: FinishReason, error: str | None = None) -> None:
        """End the request here."""
        stopped = self.written.transcript.close()
        self.finish_reason = "stop" if stopped and reason == "length" else reason
        self.error = error
        self.state = State.FINISHED

    @property
    def keeps_work(self) -> bool:
        """Whether what was decided outlives the loss of what the device holds of the row: an exact
        cache can be encoded anew, in one forward where segments alone tell its parts apart."""
        if self.spec.noise == "gaussian" or self.spec.self_conditioning:
            return not self.forwards
        if not self.exact:
            return not self.cached or not self.forwards
        begun_with = self.state is not State.ENCODE_BLOCK and not len(self.written)
        return begun_with or self.spec.attention == "block-causal"

    def set_aside(self) -> None:
        """Make room for others: the device forgets the row, which waits to be admitted again and
        goes on where it was, or starts over where that cannot be."""
        if self.keeps_work:
            if self._set_aside_in is not State.ENCODE_BLOCK:  # else that is still to be encoded
                self._set_aside_in = self.state
            self.state = State.WAITING
        else:
            self.restarts += 1
            self.reset()

    @property
    def encoded_end(self) -> int:
        """Sequence index up to which the next encoding fills the cache."""
        finished = State.ENCODE_BLOCK in (self.state, self._set_aside_in)
        return self.frame.end if finished else self.frame.start

    def admitted(self) -> None:
        """There is room for it: what its first forward is."""
        begins_with_prompt = self.exact and self.encoded_end > 0
        self.state = State.ENCODE_PROMPT if begins_with_prompt else State.DENOISE
        self._pass_over()

    def encoded(self) -> None:
        """The prompt, or the finished frame, is in the cache: what is denoised next."""
        if State.ENCODE_BLOCK in (self.state, self._set_aside_in):
            self._begin_frame()
        self._set_aside_in = None
        self.state = State.DENOISE
        self._pass_over()

    def _pass_over(self) -> None:
        """Frames that are the same in all choices left need no forward."""
        while self.choices and self.state is State.DENOISE and not self.open.any():
            self._finish_frame()

    def _end_if_decided(self) -> bool:
        """End the request with its only choice left, if it is."""
        choice = self.choices.decided if self.choices else None
        if choice is None:
            return False
        self.written.choose(choice)
        self.finish("stop")
        return True

    def _renew_noise(self) -> None:
        """Uniform noise at open positions is drawn anew before each forward, as in
        DiffusionGemma's decoder."""
        if self.spec.noise == "uniform":
            noise = filling(self.spec, len(self.frame), self.rng)
            self.tokens[self.open] = noise[self.open]

    def _first_of_frame(self) -> Bools:
        """(F,) the frame's first position, if it commits at once."""
        first = np.zeros(len(self.frame), dtype=np.bool_)
        first[0] = self.spec.commit_first and self.step == 0
        return first

    def _stable(self) -> Bools:
        """(F,) open positions whose most likely token has been the same for long enough."""
        least = self.request.decoding.stable_steps
        return self.eligible() & (self.block.history.stable >= (least or len(self.frame) + 1))

    def _count_forward(self) -> None:
        self.forwards += 2 if self.request.decoding.guidance else 1
        self.block.full_steps += not self.eligible().any()
        self.block.step += 1

    def _begin_frame(self) -> None:
        self.frame = next_frame(
            self.spec,
            self.geometry,
            self.prompt,
            done=len(self.written),
            max_tokens=self.max_tokens,
            given=self.choices or self._pins,
            rng=self.rng,
        )
        self.written.begin(self.frame)
        self._begin_block()

    def _begin_block(self) -> None:
        self.block = Block(self.frame, self.request.decoding)

    def _next_block(self) -> None:
        if not self.eligible().any():
            self._begin_block()

    def _advance(self) -> None:
        """Grow the text by the closed run at the frame's start; see whether that ends it."""
        if self.written.ends(self.frame):
            self.finish("stop")
        elif not self.open.any():
            self._finish_frame()

    def _finish_frame(self) -> None:
        if self.written.finish_frame(self.frame):
            self.finish("length")
        else:
            self.state = State.ENCODE_BLOCK if self.exact else State.DENOISE
            if not self.exact:
                self._begin_frame()
