"""Runner: the only room of the engine that touches the device. One plan, one forward.

Shapes: R rows, P new positions (padded), W live block positions, N cached positions, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from raydiff.engine.canvas import Ints
from raydiff.engine.plan import DenoisePlan, DenoiseResult, EncodePlan, Shape
from raydiff.engine.sampler import Sampler
from raydiff.engine.slab import Slab
from raydiff.errors import OutOfMemory
from raydiff.models.denoiser import Cache, Denoiser

USED_STEP = 32
"""Cached positions are read in multiples of this, so that shapes repeat."""


class Runner:
    """Keeps the caches of admitted rows and runs plans over them."""

    def __init__(self, denoiser: Denoiser) -> None:
        self._denoiser = denoiser
        self._sampler = Sampler(denoiser)
        self._slabs: dict[Shape, Slab] = {}

    def encode(self, plan: EncodePlan) -> None:
        """Encode the plan's tokens and store them in the rows' caches.

        Raises:
            OutOfMemory: the device or host had too little memory.
        """
        with torch.inference_mode(), _memory_errors():
            self._encode(plan)

    def denoise(self, plan: DenoisePlan) -> DenoiseResult:
        """One denoising forward.

        Raises:
            OutOfMemory: the device or host had too little memory.
        """
        with torch.inference_mode(), _memory_errors():
            if plan.shape.context == 0:
                return self._sampler(self._recompute(plan), plan)
            return self._denoise(plan)

    def release(self, request_id: str) -> None:
        """Free the row of a request, if it has one."""
        for shape, slab in self._slabs.items():
            if request_id in slab:
                with torch.inference_mode():
                    slab.release(request_id)
                if not len(slab):
                    del self._slabs[shape]
                return

    def _slab(self, shape: Shape) -> Slab:
        slab = self._slabs.get(shape)
        if slab is None:
            d = self._denoiser
            slab = self._slabs[shape] = Slab(d.spec, shape.context, d.dtype, d.device)
        return slab

    def _encode(self, plan: EncodePlan) -> None:
        slab = self._slab(plan.shape)
        slab.reserve(plan.request_ids)
        rows = slab.rows(plan.request_ids)
        tokens, valid = _pad(plan.tokens, self._denoiser.spec.pad_id)
        positions = plan.starts[:, None] + np.arange(tokens.shape[1])
        positions = np.where(valid, positions, plan.starts[:, None])
        past: Cache | None = None
        past_valid = np.zeros((len(rows), 0), dtype=np.bool_)
        if plan.cached.any():
            past, past_valid = self._past(slab, rows, plan.cached)
        keys = np.concatenate([past_valid, valid], axis=1)
        mask = self._to(keys)[:, None, :].expand(-1, tokens.shape[1], -1)
        kv = self._denoiser.encode(
            self._to(tokens), self._to(positions), mask, past, self._to(valid)
        )
        slab.write(rows, kv, plan.cached.tolist())

    def _denoise(self, plan: DenoisePlan) -> DenoiseResult:
        slab = self._slabs[plan.shape]
        order = np.argsort(slab.rows(plan.request_ids), kind="stable")
        # in slab order, a batch of all rows reads the caches without a copy
        rows = [slab.rows(plan.request_ids)[i] for i in order]
        past, past_valid = self._past(slab, rows, plan.cached[order])
        live, width = plan.live[order], plan.live.shape[1]
        keys = np.concatenate([past_valid, live], axis=1)
        mask = self._to(keys)[:, None, :].expand(-1, width, -1)
        positions = plan.starts[order][:, None] + np.arange(width)
        hidden, _ = self._denoiser.forward(
            self._to(plan.tokens[order]), self._to(positions), mask, past, False, self._to(live)
        )
        back = torch.as_tensor(np.argsort(order), device=hidden.device)
        return self._sampler(hidden[back], plan)

    def _past(self, slab: Slab, rows: list[int], cached: Ints) -> tuple[Cache, np.ndarray]:
        used = -(-int(cached.max()) // USED_STEP) * USED_STEP
        past = slab.read(rows, used)
        return past, np.arange(past[0].shape[4])[None, :] < cached[:, None]

    def _recompute(self, plan: DenoisePlan) -> Tensor:
        """Hidden states of the block with nothing cached: context and block in one sequence."""
        context, valid = _pad(plan.contexts, self._denoiser.spec.pad_id)
        width = plan.live.shape[1]
        prompts = np.array(plan.prompt_lengths)
        segments = _segments(prompts, context.shape[1], plan.shape.block_length)
        last = np.full((len(context), width), np.iinfo(np.int64).max)
        segments = np.concatenate([segments, last], axis=1)
        live = np.concatenate([valid, plan.live], axis=1)
        mask = (segments[:, :, None] >= segments[:, None, :]) & live[:, None, :]
        tokens = np.concatenate([context, plan.tokens], axis=1)
        positions = _positions(plan, context.shape[1])
        hidden, _ = self._denoiser.forward(
            self._to(tokens), self._to(positions), self._to(mask), None, False, self._to(live)
        )
        return hidden[:, -width:]

    def _to(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._denoiser.device)


def _pad(rows: tuple[tuple[int, ...], ...], pad_id: int) -> tuple[Ints, np.ndarray]:
    """Stack rows of unequal length; returns tokens (R, P) and which of them are real (R, P)."""
    width = max(len(row) for row in rows)
    tokens = np.full((len(rows), width), pad_id, dtype=np.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return tokens, np.arange(width)[None, :] < lengths[:, None]


def _segments(prompt_lengths: Ints, width: int, block_length: int) -> Ints:
    """(R, width): 0 in the prompt, b + 1 in finished block b."""
    offsets = np.arange(width)[None, :] - prompt_lengths[:, None]
    return np.where(offsets < 0, 0, 1 + offsets // block_length)


def _positions(plan: DenoisePlan, width: int) -> Ints:
    """(R, width + W) model positions of prompt, finished blocks and block."""
    prompts = np.array(plan.prompt_lengths)[:, None]
    first = plan.starts[:, None] - (plan.cached[:, None] - prompts)
    at = np.arange(width)[None, :]
    beyond = at >= plan.cached[:, None]
    context = np.where(at < prompts, at, first + at - prompts)
    block = plan.starts[:, None] + np.arange(plan.live.shape[1])
    return np.concatenate([np.where(beyond, 0, context), block], axis=1)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Turns every way in which torch reports a lack of memory into OutOfMemory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise OutOfMemory(f"A forward ran out of memory: {error}") from error
    except RuntimeError as error:
        if "allocate" in str(error) and "memory" in str(error):
            raise OutOfMemory(f"A forward ran out of memory: {error}") from error
        raise
