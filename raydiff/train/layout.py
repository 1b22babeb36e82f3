"""How a batch of prompts and noised targets goes through a denoiser, for either attention.

Full attention: each noised copy stands behind its prompt, in one forward. Encoder-block: a prompt
is encoded once, and its copies, which do not see one another, attend to it. Shapes: B documents,
T longest prompt, R noised copies of each target, L target positions, D hidden size.
"""

# ruff: noqa: N815 - field names carry shapes
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from raydiff.models.denoiser import Denoiser
from raydiff.spec import ModelSpec
from raydiff.train.batches import Ints
from raydiff.train.objective import pad


@dataclass(frozen=True)
class Prompts:
    """Padded prompts and where their targets stand."""

    tokens_BT: Tensor
    live_BT: Tensor
    target_positions_BL: Tensor


def lay_out(prompts: list[Ints], length: int, spec: ModelSpec) -> Prompts:
    """Pad prompts; targets of `length` follow each prompt or stand at `spec.target_position`."""
    tokens_BT = pad(prompts, spec.pad_id)
    sizes_B = np.array([len(row) for row in prompts])
    starts_B = np.full_like(sizes_B, spec.target_position) if spec.target_position else sizes_B
    return Prompts(
        tokens_BT=torch.from_numpy(tokens_BT),
        live_BT=torch.from_numpy(np.arange(tokens_BT.shape[1]) < sizes_B[:, None]),
        target_positions_BL=torch.from_numpy(starts_B[:, None] + np.arange(length)),
    )


def target_hidden(denoiser: Denoiser, prompts: Prompts, noised_BRL: Tensor) -> Tensor:
    """Hidden states [B, R, L, D] of noised targets."""
    if denoiser.spec.attention == "full":
        return _behind_prompts(denoiser, prompts, noised_BRL)
    return _beside_one_another(denoiser, prompts, noised_BRL)


def _behind_prompts(denoiser: Denoiser, prompts: Prompts, noised_BRL: Tensor) -> Tensor:
    rows, copies, length = noised_BRL.shape
    width = prompts.tokens_BT.shape[1]
    own_BL = torch.ones((rows, length), dtype=torch.bool)
    positions_BT = torch.arange(width).expand(rows, width)
    # A copy (row b, copy r) is row b * R + r.
    live_XK = torch.cat([prompts.live_BT, own_BL], dim=1).repeat_interleave(copies, dim=0)
    positions_XK = torch.cat([positions_BT, prompts.target_positions_BL], dim=1)
    tokens_XT = prompts.tokens_BT.repeat_interleave(copies, dim=0)
    hidden_XKD, _ = denoiser.forward(
        torch.cat([tokens_XT, noised_BRL.flatten(0, 1)], dim=1),
        positions_XK.repeat_interleave(copies, dim=0),
        live_XK[:, None, :].expand(-1, width + length, -1),
        None,
        False,
        live_XK,
    )
    return hidden_XKD[:, width:].reshape(rows, copies, length, -1)


def _beside_one_another(denoiser: Denoiser, prompts: Prompts, noised_BRL: Tensor) -> Tensor:
    rows, copies, length = noised_BRL.shape
    width, span = prompts.tokens_BT.shape[1], copies * length
    positions_BT = torch.arange(width).expand(rows, width)
    seen_BTT = prompts.live_BT[:, None, :].expand(rows, width, width)
    past = denoiser.encode(prompts.tokens_BT, positions_BT, seen_BTT, None, prompts.live_BT)
    copy_S = torch.arange(span) // length
    own_BSS = (copy_S[:, None] == copy_S[None, :]).expand(rows, span, span)
    prompt_BST = prompts.live_BT[:, None, :].expand(rows, span, width)
    hidden_BSD, _ = denoiser.forward(
        noised_BRL.flatten(1),
        prompts.target_positions_BL.repeat(1, copies),
        torch.cat([prompt_BST, own_BSS], dim=2),
        past,
        False,
    )
    return hidden_BSD.view(rows, copies, length, -1)
