"""The objective of embedding diffusion: noise on word embeddings, their recovery, and rounding.

Three terms: the squared error of what the network predicts (Li et al. 2022, Diffusion-LM, eq. 2-4;
Lipman et al. 2023 for velocities), the cross-entropy of the tokens read off the predicted clean
embeddings (Gao et al. 2022, Difformer's anchor loss), and that of the tokens read off the clean
embeddings themselves (Diffusion-LM's rounding term), which keeps embeddings apart that are trained
along. Shapes: B documents, P prompt positions, R noised copies of each target, N = B * R, L target
positions, E embedding width, V vocabulary.
"""

# ruff: noqa: N815 - field names carry shapes
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, layer_norm, linear

from raydiff.diffusion.gaussian import clean, level_at, target
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.train.batches import Ints, TokenisedPairs, prompt
from raydiff.train.objective import fill, pad
from raydiff.train.tokenizer import END_ID, PAD_ID

Embeddings = Literal["joint", "frozen"]

FULL_NOISE_SHARE = 0.1
SHORT_SHARE = 0.25
LEAST_TOKENS = 8
FILL_WEIGHT = 0.25
ROUNDING_NOISE = 0.1


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings:
    """How targets are noised and scored, and how embeddings are learnt."""

    copies: int = 1
    """Noised copies of each target in a batch."""
    target_tokens: int = 24
    embeddings: Embeddings = "joint"
    """Whether word embeddings are trained along or stay as they begin."""
    embedding_norm: bool = True
    """Whether every embedding is brought to mean 0 and variance 1."""
    token_weight: float = 1.0
    rounding_weight: float = 1.0


@dataclass(frozen=True)
class NoisedTargets:
    """One training step's tensors."""

    prompts_BP: Tensor
    prompt_live_BP: Tensor
    tokens_NL: Tensor
    weights_NL: Tensor
    time_N: Tensor
    noise_NLE: Tensor
    rounding_noise_BLE: Tensor


class EmbeddingObjective:
    """Implements `raydiff.train.trainer.Objective`."""

    def __init__(
        self,
        denoiser: EmbeddingDenoiser,
        pairs: TokenisedPairs,
        settings: EmbeddingSettings,
        document_tokens: int,
    ) -> None:
        self._denoiser, self._pairs, self._settings = denoiser, pairs, settings
        self._document_tokens = document_tokens
        self._width = denoiser.table().shape[1]

    def draw(
        self, rows: Ints, generator: np.random.Generator, shared: np.random.Generator
    ) -> NoisedTargets:
        """See `Objective.draw`. Some batches have shorter targets, so that any length works."""
        settings = self._settings
        length = settings.target_tokens
        if shared.random() < SHORT_SHARE:
            length = int(shared.integers(LEAST_TOKENS, length + 1))
        prompts = [prompt(self._pairs.documents[row], self._document_tokens) for row in rows]
        prompts_BP = pad(prompts, PAD_ID)
        sizes_B = np.array([len(row) for row in prompts])
        tokens_BL = np.stack([fill(self._pairs.summaries[row], length) for row in rows])
        times = self._times(len(rows), generator)
        copies, shape = settings.copies, (length, self._width)
        noise = generator.standard_normal((len(rows) * copies, *shape), dtype=np.float32)
        rounding = generator.standard_normal((len(rows), *shape), dtype=np.float32)
        return NoisedTargets(
            prompts_BP=torch.from_numpy(prompts_BP),
            prompt_live_BP=torch.from_numpy(np.arange(prompts_BP.shape[1]) < sizes_B[:, None]),
            tokens_NL=torch.from_numpy(np.repeat(tokens_BL, copies, axis=0)),
            weights_NL=torch.from_numpy(np.repeat(_weights(tokens_BL), copies, axis=0)),
            time_N=torch.from_numpy(times),
            noise_NLE=torch.from_numpy(noise),
            rounding_noise_BLE=torch.from_numpy(ROUNDING_NOISE * rounding),
        )

    def _times(self, rows: int, generator: np.random.Generator) -> np.ndarray:
        """Spread over a document's copies, half of them in the noisiest quarter, where what is
        said is decided; at times exactly where decoding starts.
        """
        copies, first = self._settings.copies, self._denoiser.spec.first_time
        spread_BR = (generator.random((rows, 1)) + np.arange(copies) / copies) % 1.0
        full_BR = generator.random((rows, copies)) < FULL_NOISE_SHARE
        times: np.ndarray = np.where(full_BR, first, first * (1 - spread_BR**2))
        return times.ravel().astype(np.float32)

    def loss(self, shard: NoisedTargets) -> tuple[Tensor, Tensor]:
        """See `Objective.loss`."""
        spec, settings = self._denoiser.spec, self._settings
        table_VE = learnt_table(self._denoiser, settings.embedding_norm)
        x0_NLE = embedding(shard.tokens_NL, table_VE)
        level = level_at(spec.noise_schedule, shard.time_N)
        x_NLE = level.mix(x0_NLE, shard.noise_NLE)
        predicted_NLE = self._predict(shard, x_NLE, table_VE)
        wanted_NLE = target(spec.prediction, x0_NLE, shard.noise_NLE)
        errors_NL = (predicted_NLE - wanted_NLE).square().mean(dim=2)
        x0_hat_NLE = clean(spec.prediction, predicted_NLE, x_NLE, level)
        tokens_NL = self._cross_entropy(x0_hat_NLE, shard.tokens_NL, table_VE)
        # near pure noise a predicted epsilon says little of x0, and its error is blown up
        trust_N = level.alpha**2 if spec.prediction == "epsilon" else torch.ones_like(level.alpha)
        scored_NL = errors_NL + settings.token_weight * trust_N[:, None] * tokens_NL
        loss = (scored_NL * shard.weights_NL).sum() / shard.weights_NL.sum()
        loss = loss + settings.rounding_weight * self._rounding(shard, table_VE)
        full_N = shard.time_N >= spec.first_time
        return loss, tokens_NL[full_N][shard.weights_NL[full_N] == 1]

    def _predict(self, shard: NoisedTargets, x_NLE: Tensor, table_VE: Tensor) -> Tensor:
        copies = self._settings.copies
        prompts_BPX = self._denoiser.encode_prompt(shard.prompts_BP, shard.prompt_live_BP, table_VE)
        return self._denoiser.predict(
            x_NLE,
            shard.time_N,
            torch.ones_like(shard.tokens_NL, dtype=torch.bool),
            prompts_BPX.repeat_interleave(copies, dim=0),
            shard.prompt_live_BP.repeat_interleave(copies, dim=0),
        ).float()

    def _rounding(self, shard: NoisedTargets, table_VE: Tensor) -> Tensor:
        tokens_BL = shard.tokens_NL[:: self._settings.copies]
        weights_BL = shard.weights_NL[:: self._settings.copies]
        noised_BLE = embedding(tokens_BL, table_VE) + shard.rounding_noise_BLE
        losses_BL = self._cross_entropy(noised_BLE, tokens_BL, table_VE)
        return (losses_BL * weights_BL).sum() / weights_BL.sum()

    def _cross_entropy(self, x_NLE: Tensor, tokens_NL: Tensor, table_VE: Tensor) -> Tensor:
        logits_NLV = linear(x_NLE, table_VE, self._denoiser.model.lm_head.bias.float())
        losses = cross_entropy(logits_NLV.flatten(0, 1), tokens_NL.flatten(), reduction="none")
        return losses.view_as(tokens_NL)


def log_frequencies(pairs: TokenisedPairs, settings: EmbeddingSettings, vocab: int) -> Tensor:
    """(V,) log share of each token among scored targets, smoothed: where the head's bias begins."""
    counts_V = np.ones(vocab)
    for summary in pairs.summaries:
        np.add.at(counts_V, summary[: settings.target_tokens], 1.0)
    counts_V[END_ID] += len(pairs.summaries)
    return torch.from_numpy(np.log(counts_V / counts_V.sum())).float()


def learnt_table(denoiser: EmbeddingDenoiser, normalise: bool) -> Tensor:
    """The embeddings [V, E] in fp32 that are noised and compared with."""
    table_VE = denoiser.table().float()
    return normalised(table_VE) if normalise else table_VE


def normalised(table_VE: Tensor) -> Tensor:
    """Embeddings, each with mean 0 and variance 1."""
    return layer_norm(table_VE, table_VE.shape[1:])


def _weights(tokens_BL: Ints) -> np.ndarray:
    """1 up to and with the first end token, less on what fills the rest."""
    ends_BL = tokens_BL == END_ID
    after_BL = ends_BL.cumsum(axis=1) - ends_BL > 0
    return np.where(after_BL, FILL_WEIGHT, 1.0).astype(np.float32)
