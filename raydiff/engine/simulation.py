"""The runner of simulated models: `Runner`'s face, without a network. Knows no torch.

Shapes: R rows, S of them with draws, W positions of the window.
"""

from __future__ import annotations

import time

import numpy as np

from raydiff.engine.frame import Bools, Floats, Ints
from raydiff.engine.likelihoods import LikelihoodRows, RowLikelihoods
from raydiff.engine.plan import ChoiceRows, DenoisePlan, DenoiseResult, EncodePlan
from raydiff.errors import EngineError
from raydiff.simulated import text
from raydiff.simulated.naming import SimulatedModel

_FOREVER_S = 3600.0


class SimulatedRunner:
    """Sleeps as long as a forward would take, and commits by quota or threshold from the left.

    The thread sleeps; it neither spins nor holds the interpreter. A row's tokens follow from its
    prompt, its positions and its own generator's draws.
    """

    def __init__(self, model: SimulatedModel) -> None:
        self._model = model
        self._keys: dict[str, int] = {}
        self._forwards = 0

    def encode(self, plan: EncodePlan) -> None:
        """Take note of prompts; finished blocks are only waited for."""
        began_s = time.monotonic()
        for request_id, tokens in zip(plan.request_ids, plan.tokens, strict=True):
            self._meet(request_id, tokens)
        self._wait(began_s, self._model.encode_s(sum(map(len, plan.tokens))))

    def denoise(self, plan: DenoisePlan) -> DenoiseResult:
        """One denoising forward.

        Raises:
            EngineError: the model's name asks for a failure here.
        """
        began_s = time.monotonic()
        contexts = plan.contexts.tokens if plan.contexts is not None else ()
        for request_id, tokens in zip(plan.request_ids, contexts, strict=False):
            self._meet(request_id, tokens)
        result = self._decide(plan)
        self._misbehave()
        positions = int(plan.live.sum()) + sum(map(len, contexts))
        self._wait(began_s, self._model.denoise_s(positions))
        return result

    def release(self, request_id: str) -> None:
        """Forget a request."""
        self._keys.pop(request_id, None)

    def forget_prefixes(self) -> bool:
        """Nothing is kept of earlier prompts."""
        return False

    def _meet(self, request_id: str, prompt: Ints) -> None:
        """The first tokens seen of a request are its prompt."""
        if request_id not in self._keys:
            self._keys[request_id] = text.digest(prompt)

    def _wait(self, began_s: float, forward_s: float) -> None:
        time.sleep(max(0.0, began_s + forward_s - time.monotonic()))

    def _misbehave(self) -> None:
        self._forwards += 1
        if self._forwards == self._model.fail_after:
            raise EngineError(f"{self._model.name}: fails as its name asks.")
        while self._model.stall_after and self._forwards > self._model.stall_after:
            time.sleep(_FOREVER_S)

    def _decide(self, plan: DenoisePlan) -> DenoiseResult:
        rows, width = plan.open.shape
        keys = np.array([self._keys.get(name, 0) for name in plan.request_ids], dtype=np.uint64)
        positions = plan.starts[:rows, None] + np.arange(width)
        hashes = text.hashes(keys, positions, _draws(plan))
        chance = 1 / self._model.tokens if self._model.tokens else 0.0
        shown = plan.tokens[:rows]
        written = text.tokens(hashes, chance, plan.end_forbidden)
        candidates = np.where(plan.open, written, shown)
        confidence = text.confidence(hashes)
        commit = _leftmost(plan.open, plan.at_least) | _sure(plan, confidence)
        tokens, is_open = np.where(commit, candidates, shown), plan.open & ~commit
        chosen = None
        if plan.choices is not None:
            chosen = _choose(plan.choices, keys, plan.open, tokens, is_open)
        return DenoiseResult(
            candidates=candidates,
            tokens=tokens,
            open=is_open,
            final=np.asarray(~is_open.any(axis=1)),
            best=candidates if plan.remembers else None,
            best_confidence=confidence if plan.remembers else None,
            confidence=confidence if plan.remembers else None,
            chosen=chosen,
            likelihoods=_likelihoods(plan.likelihoods, candidates, confidence),
        )


def _draws(plan: DenoisePlan) -> Floats:
    """(R, W) of rows that sample, zero elsewhere."""
    draws = np.zeros(plan.open.shape, dtype=np.float32)
    if plan.sampling is not None:
        draws[plan.sampling.rows] = plan.sampling.uniforms
    return draws


def _likelihoods(
    asked: LikelihoodRows | None, candidates: Ints, confidence: Floats
) -> RowLikelihoods | None:
    """Log-probabilities that agree with the candidates and their confidence."""
    if asked is None:
        return None
    ids, probabilities = text.alternatives(
        candidates[asked.rows], confidence[asked.rows], asked.top
    )
    own = np.log(confidence[asked.rows])
    return RowLikelihoods(
        rows=asked.rows, candidate=own, best=own, top_ids=ids, top=np.log(probabilities)
    )


def _leftmost(is_open: Bools, count: Ints) -> Bools:
    """(R, W) each row's first so many open positions."""
    first: Bools = is_open & (np.cumsum(is_open, axis=1) <= count[:, None])
    return first


def _sure(plan: DenoisePlan, confidence: Floats) -> Bools:
    """(R, W) open positions at the threshold, of rows of that policy."""
    threshold = np.full(len(plan.open), np.inf, dtype=np.float32)
    for group in plan.policies:
        if group.policy == "threshold":
            threshold[group.rows] = group.settings["threshold"]
    sure: Bools = plan.open & (confidence >= threshold[:, None])
    return sure


def _choose(
    choices: ChoiceRows, keys: np.ndarray, was_open: Bools, tokens: Ints, is_open: Bools
) -> Floats:
    """Fill rows that choose with one of their choices, by their prompts; returns (R,)."""
    chosen: Floats = np.ones(len(tokens), dtype=np.float32)
    for place, row in enumerate(choices.rows):
        ways = np.flatnonzero(choices.real[place])
        way = ways[int(keys[row] % len(ways))]
        at = np.flatnonzero(was_open[row])
        tokens[row, at] = choices.tokens[place, way][choices.places[place]]
        is_open[row, at] = False
        chosen[row] = 1 / len(ways)
    return chosen
