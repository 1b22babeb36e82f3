"""A small engine for tests: one block, any policy, any predictor, many rows at once.

Shapes: R rows, W positions, V vocabulary entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from raydiff.decoding import CHOICES
from raydiff.diffusion import sampling
from raydiff.diffusion.rules import RULES
from raydiff.diffusion.schedule import quotas
from raydiff.diffusion.view import Change, View
from raydiff.spec import Noise

Predict = Callable[[Tensor, Tensor, float], Tensor]
"""(tokens_RW, open_RW, time) -> logits_RWV."""


@dataclass
class Trace:
    """What happened."""

    tokens: Tensor
    forwards: Tensor
    """(R,)"""
    opens: list[Tensor] = field(default_factory=list)
    """Open positions before each forward."""
    canvases: list[Tensor] = field(default_factory=list)


def decode(
    policy: str,
    predict: Predict,
    start: Tensor,
    is_open: Tensor,
    *,
    mask_id: int,
    vocab: int,
    steps: int | None = None,
    settings: Mapping[str, float | str] | None = None,
    noise: Noise = "absorbing",
    temperature: float = 0.0,
    seed: int = 0,
    limit: int = 400,
) -> Trace:
    """Denoise the open positions of `start` (R, W) to the end."""
    rows = len(start)
    generator = torch.Generator().manual_seed(seed)
    state = _State(start.clone(), is_open.clone(), mask_id, vocab, noise)
    shares = quotas(int(is_open[0].sum()), steps) if steps else ()
    own = {name: _number(name, value) for name, value in (settings or {}).items()}
    trace = Trace(tokens=start, forwards=torch.zeros(rows, dtype=torch.long))
    for step in range(limit):
        trace.opens.append(state.open.clone())
        trace.canvases.append(state.tokens.clone())
        trace.forwards += ~state.done
        time, after = (1 - step / steps, max(0.0, 1 - (step + 1) / steps)) if steps else (1, 0)
        logits = predict(state.tokens, state.open, float(time))
        draws = torch.rand(rows, RULES[policy].traits.draws, start.shape[1], generator=generator)
        at_least = shares[step] if step < len(shares) else 1
        chance = torch.rand(start.shape, generator=generator)
        state.see(logits, temperature, chance, _needs(policy, own))
        view = state.view(draws, at_least, step, (float(time), float(after)), own)
        state.take(RULES[policy].apply(view))
        if bool(state.done.all()):
            trace.tokens = state.tokens
            return trace
    raise AssertionError(f"{policy} did not finish in {limit} forwards")


def _needs(policy: str, own: Mapping[str, float]) -> frozenset[str]:
    """What the rule reads; of ancestral sampling and flow, only if they may stop early."""
    idle = policy in ("ancestral", "flow") and math.isnan(own["stop_entropy"])
    return frozenset() if idle else RULES[policy].traits.needs


def _number(name: str, value: float | str) -> float:
    return float(CHOICES[name].of.index(value)) if isinstance(value, str) else float(value)


class _State:
    def __init__(
        self, tokens: Tensor, is_open: Tensor, mask_id: int, vocab: int, noise: Noise
    ) -> None:
        self.tokens, self.open, self.given = tokens, is_open, ~is_open
        self.done = torch.zeros(len(tokens), dtype=torch.bool)
        self.full_steps = torch.zeros(len(tokens), dtype=torch.long)
        self.commit_confidence = torch.ones(tokens.shape)
        self.best = torch.full_like(tokens, -1)
        self.margin = self.entropy = torch.zeros(tokens.shape)
        self._fixed = (mask_id, vocab, noise)

    def see(
        self,
        logits_RWV: Tensor,
        temperature: float,
        uniforms_RW: Tensor,
        needs: frozenset[str],
    ) -> None:
        """Candidates and statistics of a forward."""
        shape, flat = self.tokens.shape, logits_RWV.flatten(0, 1)
        count = len(flat)
        self.previous = self.best
        best, best_confidence = sampling.greedy(flat)
        candidates, confidence = best, best_confidence
        probs = (flat / (temperature or 1.0)).softmax(-1)
        if temperature:
            none, all_of_it = torch.zeros(count, dtype=torch.long), torch.ones(count)
            candidates = sampling.sample(probs, none, all_of_it, uniforms_RW.flatten())
            confidence = sampling.confidence(flat, candidates, best, best_confidence)
        self.best, self.candidates = best.view(shape), candidates.view(shape)
        self.confidence = confidence.view(shape)
        self.best_confidence = best_confidence.view(shape)
        if "margin" in needs:
            self.margin = sampling.margin(flat).view(shape)
        if "entropy" in needs:
            self.entropy = sampling.entropy(probs).view(shape)

    def view(
        self,
        draws: Tensor,
        at_least: int,
        step: int,
        times: tuple[float, float],
        settings: dict[str, float],
    ) -> View:
        """What the rule sees."""
        rows, (mask_id, vocab, noise) = len(self.tokens), self._fixed

        def every(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.full((rows,), value, dtype=dtype)

        return View(
            tokens=self.tokens,
            open=self.open,
            revisable=~self.open & ~self.given,
            candidates=torch.where(self.given, self.tokens, self.candidates),
            confidence=self.confidence,
            best=self.best,
            best_confidence=self.best_confidence,
            margin=self.margin,
            entropy=self.entropy,
            previous_best=self.previous,
            commit_confidence=self.commit_confidence,
            uniforms=draws,
            at_least=every(at_least, torch.long),
            step=every(step, torch.long),
            full_steps=self.full_steps,
            time=every(times[0]),
            next_time=every(times[1]),
            settings={name: every(value) for name, value in settings.items()},
            noise=noise,
            vocab_size=vocab,
            mask_id=mask_id,
        )

    def take(self, change: Change) -> None:
        """Let the rows that are not done change."""
        going = ~self.done[:, None]
        self.full_steps += ~self.open.any(dim=1)
        committed = self.open & ~change.open
        self.commit_confidence = torch.where(
            committed & going, self.confidence, self.commit_confidence
        )
        self.tokens = torch.where(going, change.tokens, self.tokens)
        self.open = torch.where(going, change.open & ~change.final[:, None], self.open)
        self.done |= change.final


class Network:
    """A predictor whose every logit depends on the whole canvas; it never predicts the mask."""

    def __init__(self, width: int, vocab: int, mask_id: int, seed: int, sharp: float = 3.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._embed = torch.randn(vocab, 6, generator=generator)
        self._mix = torch.randn(width, width, generator=generator)
        self._place = torch.randn(width, 6, generator=generator)
        self._out = torch.randn(6, vocab, generator=generator) * sharp
        self._mask_id = mask_id

    def __call__(self, tokens: Tensor, is_open: Tensor, time: float) -> Tensor:
        hidden = torch.einsum("pq,rqd->rpd", self._mix, self._embed[tokens]) + self._place
        logits = hidden.tanh() @ self._out
        logits[..., self._mask_id] = float("-inf")
        return logits
