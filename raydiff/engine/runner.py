"""Runner: the only room of the engine that touches the device. One plan, one forward.

Shapes: R rows, P new positions (padded), W window positions, N cached positions, K = N + W keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from raydiff.engine.frame import Bools, Ints
from raydiff.engine.memory import USED_STEP
from raydiff.engine.plan import Contexts, DenoisePlan, DenoiseResult, EncodePlan, Shape
from raydiff.engine.prefix_store import PrefixStore
from raydiff.engine.rows import stack
from raydiff.engine.sampler import Sampler
from raydiff.engine.shortage import memory_errors
from raydiff.engine.slab import Slab
from raydiff.engine.soft import SoftRows
from raydiff.models.denoiser import Cache, Denoiser


class Runner:
    """Keeps the caches of admitted rows and runs plans over them."""

    def __init__(self, denoiser: Denoiser) -> None:
        self._denoiser = denoiser
        self._sampler = Sampler(denoiser)
        self._soft = SoftRows(denoiser) if denoiser.spec.self_conditioning else None
        self._slabs: dict[Shape, Slab] = {}
        self._prefixes = PrefixStore()

    def encode(self, plan: EncodePlan) -> None:
        """Encode the plan's tokens and store them in the rows' caches.

        Raises:
            OutOfMemory: the device or host had too little memory.
        """
        with torch.inference_mode(), memory_errors():
            self._encode(plan)

    def denoise(self, plan: DenoisePlan) -> DenoiseResult:
        """One denoising forward.

        Raises:
            OutOfMemory: the device or host had too little memory.
        """
        with torch.inference_mode(), memory_errors():
            result, soft_RWD = self._sampler(self._hidden(plan), plan)
            if self._soft is not None and soft_RWD is not None:
                self._soft.keep(plan.request_ids, soft_RWD)
            return result

    def forget_prefixes(self) -> bool:
        """Free what is kept of earlier prompts; whether there was anything."""
        return self._prefixes.clear()

    def release(self, request_id: str) -> None:
        """Free the row of a request, if it has one."""
        if self._soft is not None:
            self._soft.release(request_id)
        for shape, slab in self._slabs.items():
            if request_id in slab:
                with torch.inference_mode():
                    slab.release(request_id)
                if not len(slab):
                    del self._slabs[shape]
                return

    def _slab(self, shape: Shape) -> Slab:
        key = replace(shape, store=False, verify=False)
        slab = self._slabs.get(key)
        if slab is None:
            d = self._denoiser
            slab = self._slabs[key] = Slab(d.spec, shape.context, d.dtype, d.device)
        return slab

    def _encode(self, plan: EncodePlan) -> None:
        slab = self._slab(plan.shape)
        slab.reserve(plan.request_ids)
        rows = slab.rows(plan.request_ids)
        if plan.prefix is not None:
            self._prefixes.fill(slab, rows, plan.prefix)
        if any(map(len, plan.tokens)):
            self._encode_new(plan, slab, rows)
        if plan.prefix is not None:
            self._prefixes.update(slab, rows, plan.prefix)

    def _encode_new(self, plan: EncodePlan, slab: Slab, rows: list[int]) -> None:
        tokens, valid = _pad(plan.tokens, self._denoiser.spec.pad_id)
        positions = plan.starts[:, None] + np.arange(tokens.shape[1])
        positions = np.where(valid, positions, plan.starts[:, None])
        past, past_valid = self._past(slab, rows, plan.cached, None)
        mask = self._mask(past_valid, valid, plan.segments)
        kv = self._denoiser.encode(
            self._to(tokens), self._to(positions), mask, past, self._to(valid)
        )
        slab.write(rows, kv, plan.cached.tolist())

    def _hidden(self, plan: DenoisePlan) -> Tensor:
        """Hidden states [R + G, W, D] of the plan's windows."""
        if plan.contexts is not None:
            past = self._encode_anew(plan.contexts)
            width = past[0].shape[4] if past else 0
            seen = _visible(width, plan.before, None)
            return self._forward(plan, past, seen, np.arange(len(plan.tokens)))
        if plan.shape.context == 0 or plan.shape.store:
            order = np.arange(len(plan.tokens))
            none = np.zeros((len(order), 0), dtype=np.bool_)
            return self._forward(plan, None, none, order)
        slab = self._slab(plan.shape)
        slab.reserve(plan.request_ids)
        # in slab order, a batch of all rows reads the caches without a copy
        order = np.argsort(slab.rows(plan.request_ids), kind="stable")
        rows = [slab.rows(plan.request_ids)[i] for i in order]
        past, seen = self._past(slab, rows, plan.before[order], plan.after[order])
        hidden_RWD = self._forward(plan, past, seen, order)
        return hidden_RWD[torch.as_tensor(np.argsort(order), device=hidden_RWD.device)]

    def _forward(
        self, plan: DenoisePlan, past: Cache | None, past_seen: Bools, order: Ints
    ) -> Tensor:
        """One forward over the plan's rows in `order`; the hidden states come in that order."""
        live = plan.live[order]
        offsets = np.arange(live.shape[1]) if plan.layout is None else plan.layout.offsets
        positions = plan.starts[order][:, None] + offsets
        blind = None if plan.blind_first is None else plan.blind_first[order]
        mask = self._mask(past_seen, live, None, blind)
        if plan.layout is not None:
            mask = mask.clone()
            mask[:, :, past_seen.shape[1] :] &= self._to(plan.layout.sees)
        soft = None if self._soft is None else self._soft.read(plan, order)
        hidden_RWD, kv = self._denoiser.forward(
            self._to(plan.tokens[order]),
            self._to(positions),
            mask,
            past,
            plan.shape.store,
            self._to(live),
            soft,
        )
        if kv is not None:
            self._store(plan, kv)
        return hidden_RWD

    def _store(self, plan: DenoisePlan, kv: Cache) -> None:
        slab = self._slab(plan.shape)
        slab.reserve(plan.request_ids)
        rows = slab.rows(plan.request_ids)
        slab.write(rows, kv, [0] * len(rows))

    def _encode_anew(self, contexts: Contexts) -> Cache | None:
        """The cache of prompts and finished frames of rows that keep none."""
        if not any(len(tokens) for tokens in contexts.tokens):
            return None
        tokens, valid = _pad(contexts.tokens, self._denoiser.spec.pad_id)
        positions = stack(contexts.positions, tokens.shape[1], 0)
        none = np.zeros((len(tokens), 0), dtype=np.bool_)
        mask = self._mask(none, valid, contexts.segments)
        return self._denoiser.encode(
            self._to(tokens), self._to(positions), mask, None, self._to(valid)
        )

    def _past(
        self, slab: Slab, rows: list[int], before: Ints, after: Ints | None
    ) -> tuple[Cache | None, Bools]:
        """The rows' caches and which of their positions are seen, (R, N)."""
        last = int(before.max() if after is None else max(before.max(), after[:, 1].max()))
        if last == 0:
            return None, np.zeros((len(rows), 0), dtype=np.bool_)
        past = slab.read(rows, -(-last // USED_STEP) * USED_STEP)
        return past, _visible(past[0].shape[4], before, after)

    def _mask(
        self,
        past_seen: Bools,
        valid: Bools,
        segments: tuple[Ints, ...] | None,
        blind_first: Bools | None = None,
    ) -> Tensor:
        """(R, P, K) bool: new positions see what they may of the past, and each other."""
        keys = self._to(np.concatenate([past_seen, valid], axis=1))
        past, width = past_seen.shape[1], valid.shape[1]
        mask = keys[:, None, :].expand(-1, width, -1)
        if segments is not None:
            padded = self._to(stack(segments, width, 0))
            mask = mask.clone()
            mask[:, :, past:] &= padded[:, :, None] >= padded[:, None, :]
        if blind_first is not None:
            mask = mask.clone()
            mask[:, 0, past + 1 :] &= ~self._to(blind_first)[:, None]
        return mask

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._denoiser.device)


def _visible(width: int, before: Ints, after: Ints | None) -> Bools:
    """(R, width) which cached positions a row sees: [0, before), and [from, to) of `after`."""
    at = np.arange(width)[None, :]
    seen: Bools = at < before[:, None]
    if after is not None:
        seen |= (at >= after[:, :1]) & (at < after[:, 1:])
    return seen


def _pad(rows: Sequence[Ints], pad_id: int) -> tuple[Ints, Bools]:
    """Stack rows of unequal length; returns tokens (R, P) and which of them are real (R, P)."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    return stack(rows, width, pad_id), np.arange(width)[None, :] < lengths[:, None]
