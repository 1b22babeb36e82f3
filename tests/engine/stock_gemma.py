"""transformers' own DiffusionGemma generation, drawing what a row of ours draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.diffusion_gemma import generation_diffusion_gemma as stock_generation

from tests.models.tiny_gemma import CANVAS, END_IDS, VOCAB

PAD_ID = 0
NEVER_ZERO = 1e-12
"""Between the stock schedule's ends, which must differ: in fp32 both are the same."""


class Draws:
    """The draws of one row in the engine's order: a canvas of noise, then at each step the noise
    of positions that are not accepted and, above temperature 0, what picks each candidate.
    """

    def __init__(self, seed: int, greedy: bool) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))
        self._greedy = greedy
        self._noise: Tensor | None = None

    def canvas(self, batch_size: int, device: torch.device) -> Tensor:
        """For `EntropyBoundSampler.initialize_canvas`."""
        noise, self._noise = self._noise, None
        return self._tokens() if noise is None else noise

    def multinomial(self, probabilities: Tensor, num_samples: int) -> Tensor:
        """For `torch.multinomial`: the first token whose cumulative probability passes the draw."""
        self._noise = self._tokens()
        if self._greedy:
            return probabilities.argmax(dim=-1, keepdim=True)
        draws = torch.from_numpy(self._generator.random(CANVAS, dtype=np.float32))
        cumulative = probabilities.cumsum(dim=-1)
        return (cumulative <= draws[:, None] * cumulative[:, -1:]).sum(dim=-1, keepdim=True)

    def _tokens(self) -> Tensor:
        draws = self._generator.random(CANVAS, dtype=np.float32)
        return torch.from_numpy((draws * np.float32(VOCAB)).astype(np.int64))[None]


def stock_generate(
    monkeypatch: pytest.MonkeyPatch,
    model: Any,
    prompt: list[int],
    *,
    seed: int,
    max_tokens: int,
    steps: int,
    entropy_bound: float,
    stop_entropy: float,
    temperature: float | None,
) -> tuple[list[int], int]:
    """The generated tokens, the end token and what follows it cut off, and the forwards."""
    draws = Draws(seed, greedy=temperature == 0)
    low, high = (0.4, 0.8) if temperature is None else (temperature or 1.0,) * 2
    config = stock_generation.DiffusionGemmaGenerationConfig(
        max_new_tokens=max_tokens,
        max_denoising_steps=steps,
        sampler_config=stock_generation.EntropyBoundSamplerConfig(entropy_bound=entropy_bound),
        t_min=low,
        t_max=high + NEVER_ZERO,
        stability_threshold=1,
        confidence_threshold=stop_entropy,
        pad_token_id=PAD_ID,
        eos_token_id=END_IDS,
    )
    sampler = stock_generation.EntropyBoundSampler
    forwards = []
    step = type(model)._denoising_step

    def counted(*args: Any, **kwargs: Any) -> Any:
        forwards.append(1)
        return step(model, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(sampler, "initialize_canvas", draws.canvas)
        patch.setattr(stock_generation.torch, "multinomial", draws.multinomial)
        patch.setattr(model, "_denoising_step", counted)
        # a mark for compiled graphs; nothing is compiled here
        patch.setattr(stock_generation.torch.compiler, "cudagraph_mark_step_begin", lambda: None)
        output = model.generate(torch.tensor([prompt]), generation_config=config)
    generated = output.sequences[0, len(prompt) :].tolist()
    ends = [place for place, token in enumerate(generated) if token in END_IDS]
    return generated[: ends[0] if ends else max_tokens], len(forwards)
