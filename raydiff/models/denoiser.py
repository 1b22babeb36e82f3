"""The protocols of networks: what the engine and the trainer need of one.

Shapes: B rows, L new positions, N cached positions, K = N + L keys, M picked positions, D hidden
size, V vocabulary, E width of an embedding that is noised.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from raydiff.spec import ModelSpec

Cache = tuple[Tensor, ...]
"""Keys and values of rows, one tensor [layers, 2 (keys, values), B, heads, N, head_dim] for each of
`ModelSpec.kv`; keys are stored after rotation."""


class Network(Protocol):
    """What all networks have."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of activations and caches."""
        ...


class Denoiser(Network, Protocol):
    """A network that predicts tokens at new positions, which may also attend to cached ones."""

    def forward(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        want_kv: bool,
        live_BL: Tensor | None = None,
        soft_BLD: Tensor | None = None,
    ) -> tuple[Tensor, Cache | None]:
        """Hidden states [B, L, D] of the new positions and, when wanted, their cache (never
        `past`'s part).

        `mask_BLK` is bool, True where a new position may attend to a key (cached keys first, then
        new ones); None lets all attend to all. Layers with a sliding window narrow it further, by
        positions: cached key n of a row is at position n. `past` is read, never changed. Where
        `live_BL` is False nothing is computed and the hidden state is zero; the mask must hide
        such keys. `soft_BLD` is what `SelfConditioned.soft` gave for the forward before, zeros at
        first, for models with `spec.self_conditioning`.
        """
        ...

    def encode(
        self,
        tokens_BL: Tensor,
        positions_BL: Tensor,
        mask_BLK: Tensor | None,
        past: Cache | None,
        live_BL: Tensor | None = None,
    ) -> Cache:
        """The cache of final tokens (prompts, finished blocks). For most networks the one that
        `forward` would return, for less work: the last layer is left unfinished.
        """
        ...

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Logits [M, V] of picked hidden states."""
        ...


class SelfConditioned(Denoiser, Protocol):
    """A denoiser that also takes the expected embeddings of the forward before."""

    def soft(self, logits_MV: Tensor) -> Tensor:
        """Expected embeddings [M, D] under `logits_MV`."""
        ...


class LatentDenoiser(Network, Protocol):
    """A network over noised embeddings (Li et al. 2022, Diffusion-LM; Gong et al. 2023)."""

    def embed(self, tokens_BL: Tensor) -> Tensor:
        """Clean embeddings [B, L, E] of tokens."""
        ...

    def table(self) -> Tensor:
        """The embeddings [V, E] that rounding compares with."""
        ...

    def encode_prompt(self, prompt_BP: Tensor, live_BP: Tensor) -> Tensor:
        """What `predict` needs of prompts, [B, P, X]: computed once a row, the same at every step.
        Positions where `live_BP` is False are padding.
        """
        ...

    def predict(
        self,
        latents_BLE: Tensor,
        time_B: Tensor,
        live_BL: Tensor,
        prompt_BPX: Tensor,
        prompt_live_BP: Tensor,
    ) -> Tensor:
        """x0, epsilon or velocity (`spec.prediction`) [B, L, E] of noised target embeddings.

        `time_B` is in [0, 1], 1 being pure noise; `prompt_BPX` is what `encode_prompt` gave.
        Positions where `live_BL` or `prompt_live_BP` is False are padding and change nothing.
        """
        ...

    def logits(self, latents_ME: Tensor) -> Tensor:
        """Logits [M, V] of clean embeddings, for rounding by softmax."""
        ...
