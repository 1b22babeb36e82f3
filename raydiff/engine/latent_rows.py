"""What the latent runner keeps of rows between evaluations, on the device.

Shapes: R rows, W positions of the widest, S slots, E embedding width, P prompt positions, X width
of an encoded prompt.
"""

# ruff: noqa: N815 - field names carry shapes
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raydiff.engine.frame import Ints
from raydiff.models.denoiser import LatentDenoiser

X, ANCHOR, FIRST, SECOND, THIRD = range(5)
"""Slots of a row's state: where the network is evaluated next; where Heun's step began; and up to
three predictions of evaluations before, the newest first (clean embeddings, noises or a velocity,
by the solver)."""
SLOTS = 5


@dataclass(frozen=True)
class Prompts:
    """Encoded prompts, padded."""

    encoded_RPX: Tensor
    live_RP: Tensor


class LatentRows:
    """States, last tokens and encoded prompts of admitted rows, by request."""

    def __init__(self, denoiser: LatentDenoiser) -> None:
        self._denoiser = denoiser
        self._states: dict[str, Tensor] = {}
        self._tokens: dict[str, Tensor] = {}
        self._prompts: dict[str, Tensor] = {}

    def release(self, request_id: str) -> None:
        """Forget a request."""
        for kept in (self._states, self._tokens, self._prompts):
            kept.pop(request_id, None)

    def states(self, request_ids: Sequence[str], width: int) -> Tensor:
        """(S, R, W, E) states; zeros for rows that have none yet and beyond a row's frame."""
        size = self._denoiser.spec.latent_size
        states = torch.zeros((len(request_ids), SLOTS, width, size), device=self._denoiser.device)
        for row, request_id in enumerate(request_ids):
            kept = self._states.get(request_id)
            if kept is not None:
                states[row, :, : kept.shape[1]] = kept
        return states.transpose(0, 1)

    def last_tokens(self, request_ids: Sequence[str], width: int) -> Tensor:
        """(R, W) tokens that the evaluation before rounded to, -1 where there was none."""
        tokens_RW = torch.full((len(request_ids), width), -1, device=self._denoiser.device)
        for row, request_id in enumerate(request_ids):
            kept = self._tokens.get(request_id)
            if kept is not None:
                tokens_RW[row, : len(kept)] = kept
        return tokens_RW

    def keep(
        self, request_ids: Sequence[str], lengths: Sequence[int], states: Tensor, tokens_RW: Tensor
    ) -> None:
        """Remember rows' states (S, R, W, E) and tokens, each row's own positions only."""
        for row, (request_id, length) in enumerate(zip(request_ids, lengths, strict=True)):
            self._states[request_id] = states[:, row, :length].clone()
            self._tokens[request_id] = tokens_RW[row, :length].clone()

    def prompts(self, request_ids: Sequence[str], prompts: Sequence[Ints]) -> Prompts:
        """The rows' prompts, each encoded once for as long as the request runs."""
        new = [i for i, request_id in enumerate(request_ids) if request_id not in self._prompts]
        if new:
            self._encode([request_ids[i] for i in new], [prompts[i] for i in new])
        kept = [self._prompts[request_id] for request_id in request_ids]
        encoded_RPX = torch.nn.utils.rnn.pad_sequence(kept, batch_first=True)
        return Prompts(encoded_RPX, self._live([len(row) for row in kept]))

    def _encode(self, request_ids: Sequence[str], prompts: Sequence[Ints]) -> None:
        tokens = [torch.from_numpy(prompt).to(self._denoiser.device) for prompt in prompts]
        pad_id = self._denoiser.spec.pad_id
        tokens_RP = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=pad_id)
        encoded_RPX = self._denoiser.encode_prompt(tokens_RP, self._live([len(p) for p in prompts]))
        for row, request_id in enumerate(request_ids):
            self._prompts[request_id] = encoded_RPX[row, : len(prompts[row])].clone()

    def _live(self, lengths: Sequence[int]) -> Tensor:
        lengths_R = torch.tensor(lengths, device=self._denoiser.device)
        return torch.arange(max(lengths), device=lengths_R.device) < lengths_R[:, None]
