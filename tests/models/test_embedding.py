"""Embedding diffusion computes what the papers' networks compute, whatever the padding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from raydiff.errors import ModelError
from raydiff.models.embedding import EmbeddingDenoiser, timestep_features
from tests.models import tiny_embedding as tiny
from tests.models.plain import embedding as plain

LENGTHS = ((5, 7), (9, 4), (1, 12))
"""(source, target) positions of three rows."""


class Rows:
    """Three rows, and their padded batch; what stands in the padding is anything."""

    def __init__(self, seed: int = 0, extra: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.sources = [self.ids(source) for source, _ in LENGTHS]
        self.noised = [self.normal(target, tiny.WIDTH) for _, target in LENGTHS]
        self.times = torch.tensor([1.0, 0.37, 0.02])
        sources, targets = zip(*LENGTHS, strict=True)
        self.prompt = self.ids(3, max(sources) + extra)
        self.latents = self.normal(3, max(targets) + extra, tiny.WIDTH)
        self.prompt_live = torch.arange(max(sources) + extra) < torch.tensor(sources)[:, None]
        self.live = torch.arange(max(targets) + extra) < torch.tensor(targets)[:, None]
        for row, (source, target) in enumerate(LENGTHS):
            self.prompt[row, :source] = self.sources[row]
            self.latents[row, :target] = self.noised[row]

    def ids(self, *shape: int) -> Tensor:
        return torch.randint(4, tiny.VOCAB, shape, generator=self.generator)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def predict(self, denoiser: EmbeddingDenoiser) -> list[Tensor]:
        prompts = denoiser.encode_prompt(self.prompt, self.prompt_live)
        predicted = denoiser.predict(self.latents, self.times, self.live, prompts, self.prompt_live)
        return [predicted[row, :target] for row, (_, target) in enumerate(LENGTHS)]


@pytest.fixture(params=[False, True], ids=["diffuseq", "diffusion-lm"])
def cross(request: pytest.FixtureRequest) -> bool:
    made: bool = request.param
    return made


@pytest.fixture
def denoiser(cross: bool, tmp_path: Path) -> EmbeddingDenoiser:
    config = {**tiny.OWN, **(tiny.CROSS if cross else {})}
    return tiny.load(tiny.save(tmp_path, config, tiny.weights(cross)))


def expected(cross: bool, source: Tensor, noised: Tensor, time: float) -> Tensor:
    w, step = tiny.weights(cross), 1000 * time
    if cross:
        return plain.diffusion_lm(w, tiny.HEADS, source, noised, step, positions=True)
    return plain.diffuseq(w, tiny.HEADS, source, noised, step)


def test_predictions_equal_a_plain_implementation(cross: bool, denoiser: EmbeddingDenoiser) -> None:
    rows = Rows()
    for row, predicted in enumerate(rows.predict(denoiser)):
        wanted = expected(cross, rows.sources[row], rows.noised[row], float(rows.times[row]))
        torch.testing.assert_close(predicted, wanted, atol=1e-4, rtol=1e-4)


def test_padding_changes_nothing(denoiser: EmbeddingDenoiser) -> None:
    for little, much in zip(Rows().predict(denoiser), Rows(extra=6).predict(denoiser), strict=True):
        torch.testing.assert_close(little, much, atol=1e-5, rtol=1e-5)


def test_the_source_is_seen(denoiser: EmbeddingDenoiser) -> None:
    rows = Rows()
    before = rows.predict(denoiser)
    rows.prompt[0, 0] = 4 + (rows.prompt[0, 0] - 3) % (tiny.VOCAB - 4)
    after = rows.predict(denoiser)
    assert (before[0] - after[0]).abs().max() > 1e-3
    torch.testing.assert_close(before[1], after[1])


def test_logits_are_the_tied_head(denoiser: EmbeddingDenoiser, cross: bool) -> None:
    w, x = tiny.weights(cross), torch.randn((3, tiny.WIDTH))
    wanted = x @ w["word_embedding.weight"].T + w["lm_head.bias"]
    torch.testing.assert_close(denoiser.logits(x), wanted)
    torch.testing.assert_close(denoiser.table(), w["word_embedding.weight"])


def test_published_encoder_has_no_positions(tmp_path: Path) -> None:
    config = {**tiny.OWN, **tiny.CROSS, "prompt_positions": False}
    denoiser = tiny.load(tiny.save(tmp_path, config, tiny.weights(cross=True)))
    rows = Rows()
    for row, predicted in enumerate(rows.predict(denoiser)):
        wanted = plain.diffusion_lm(
            tiny.weights(cross=True),
            tiny.HEADS,
            rows.sources[row],
            rows.noised[row],
            1000 * float(rows.times[row]),
            positions=False,
        )
        torch.testing.assert_close(predicted, wanted, atol=1e-4, rtol=1e-4)


def test_diffuseq_loads_under_its_published_arguments(tmp_path: Path) -> None:
    denoiser = tiny.load(tiny.save(tmp_path, tiny.DIFFUSEQ_ARGS, tiny.weights(cross=False)))
    rows = Rows()
    for row, predicted in enumerate(rows.predict(denoiser)):
        wanted = expected(False, rows.sources[row], rows.noised[row], float(rows.times[row]))
        torch.testing.assert_close(predicted, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [10, 11])
def test_timestep_features_are_the_published_sinusoids(size: int) -> None:
    features = timestep_features(torch.tensor([0.0, 0.25]), size)
    torch.testing.assert_close(features[1, :10], plain.time_features(250.0, 10))
    assert features.shape == (2, size)
    assert features[0].tolist() == [1.0] * 5 + [0.0] * (size - 5)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = tiny.weights(cross=False)
    del tensors["time_embed.2.bias"]
    with pytest.raises(ModelError, match=r"missing: .*time_embed\.2\.bias"):
        tiny.load(tiny.save(tmp_path, tiny.OWN, tensors))


def test_a_misshaped_tensor_is_named(tmp_path: Path) -> None:
    tensors = tiny.weights(cross=False) | {"LayerNorm.bias": torch.zeros(5)}
    with pytest.raises(ModelError, match=r"LayerNorm\.bias"):
        tiny.load(tiny.save(tmp_path, tiny.OWN, tensors))
