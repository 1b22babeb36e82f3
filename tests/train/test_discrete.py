"""Objectives of discrete noise: what is noised, what is scored, and what a score is worth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from raydiff.diffusion.d3pm import Chain, betas, uniform_step
from raydiff.models.bert import BertDenoiser
from raydiff.models.loading import random_denoiser
from raydiff.spec import Attention, Noise
from raydiff.train.batches import TokenisedPairs
from raydiff.train.discrete import DiscreteBatch, DiscreteObjective, DiscreteSettings, Kind
from raydiff.train.trainer import Trainer, TrainingSettings

VOCAB, LENGTH, DOCUMENT = 24, 8, 10
PAD, BEGIN, END, MASK = range(4)
KINDS: tuple[Kind, ...] = ("uniform", "discrete-flow", "masked")


def toy_pairs(count: int = 24) -> TokenisedPairs:
    """Documents whose summary is their first few tokens."""
    generator = np.random.default_rng(0)
    documents = [generator.integers(4, VOCAB, size=generator.integers(4, 14)) for _ in range(count)]
    summaries = [row[: 2 + len(row) % 3] for row in documents]
    return TokenisedPairs(documents=documents, summaries=summaries, groups=np.arange(count))


def toy_denoiser(
    attention: Attention, noise: Noise, train: bool = False, seed: int = 0
) -> BertDenoiser:
    start = random_denoiser(
        vocab=VOCAB,
        seed=seed,
        target_position=DOCUMENT + 2,
        block_length=LENGTH,
        spread=0.1 if train else 0.4,
    )
    place = None if attention == "full" else DOCUMENT + 2
    spec = replace(start.spec, attention=attention, noise=noise, target_position=place)
    return BertDenoiser(start.model.requires_grad_(train), spec, fuse=not train)


def toy_objective(
    kind: Kind, train: bool = False, seed: int = 0, **settings: float
) -> DiscreteObjective:
    attention: Attention = "full" if kind == "masked" else "encoder-block"
    noise: Noise = "uniform" if kind == "uniform" else "absorbing"
    denoiser = toy_denoiser(attention, noise, train, seed)
    chosen = replace(DiscreteSettings(copies=2, target_tokens=LENGTH), **settings)
    return DiscreteObjective(kind, denoiser, toy_pairs(), chosen, DOCUMENT)


def drawn(objective: DiscreteObjective, seed: int = 0, rows: int = 6) -> DiscreteBatch:
    generators = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    return objective.draw(np.arange(rows), *generators)


def clean_targets(rows: int = 6) -> torch.Tensor:
    summaries = toy_pairs().summaries[:rows]
    clean = [[*row.tolist(), *[END] * (LENGTH - len(row))] for row in summaries]
    return torch.tensor(clean)[:, None, :].expand(rows, 2, LENGTH)


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompt_is_never_noised_nor_scored(kind: Kind) -> None:
    objective = toy_objective(kind)
    for seed in range(5):
        batch = drawn(objective, seed)
        prompts = [[BEGIN, *row[:DOCUMENT].tolist(), END] for row in toy_pairs().documents[:6]]
        for row, prompt in enumerate(prompts):
            assert batch.prompts.tokens_BT[row, : len(prompt)].tolist() == prompt
        assert int(batch.scored_M.max()) < batch.noised_BRL.numel()
        assert torch.equal(batch.targets_M, clean_targets().flatten()[batch.scored_M])


@pytest.mark.parametrize("kind", ["discrete-flow", "masked"])
def test_absorbing_noise_scores_masked_positions_only(kind: Kind) -> None:
    objective = toy_objective(kind)
    for seed in range(5):
        batch = drawn(objective, seed)
        noised_S, clean_S = batch.noised_BRL.flatten(), clean_targets().flatten()
        assert bool((noised_S[batch.scored_M] == MASK).all())
        assert bool(((noised_S == MASK) | (noised_S == clean_S)).all())


def test_uniform_noise_scores_every_token_whether_changed_or_not() -> None:
    batch = drawn(toy_objective("uniform", fill_share=1.0))
    assert torch.equal(batch.scored_M, torch.arange(batch.noised_BRL.numel()))
    changed_BRL = batch.noised_BRL != clean_targets()
    assert 0.2 < float(changed_BRL.float().mean()) < 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_level_is_the_share_of_noised_tokens(kind: Kind) -> None:
    objective = toy_objective(kind, copies=64, fill_share=1.0)
    batch = drawn(objective)
    clean_BRL = clean_targets()[:, :1].expand(6, 64, LENGTH)
    noise_share = 1 - 1 / VOCAB if kind == "uniform" else 1.0
    changed = float((batch.noised_BRL != clean_BRL).double().mean())
    # Levels are even over (least, 1], with a share of `full_noise_share` at 1.
    low = 0.0 if kind == "uniform" else 0.1
    expected = noise_share * (0.8 * (low + 1) / 2 + 0.2)
    assert changed == pytest.approx(expected, abs=0.04)


def test_a_masked_position_weighs_one_over_t_and_a_flow_position_one() -> None:
    content = 2 * sum(min(len(row) + 1, LENGTH) for row in toy_pairs().summaries[:6])
    masked, flow = drawn(toy_objective("masked")), drawn(toy_objective("discrete-flow"))
    assert torch.allclose(masked.weights_M * content, 1 / masked.time_M)
    assert torch.allclose(flow.weights_M * content, torch.ones(1))


@pytest.mark.parametrize("kind", ["discrete-flow", "masked"])
def test_the_loss_of_absorbing_noise_is_weighted_cross_entropy(kind: Kind) -> None:
    """Recomputed one row at a time, without batching, packing or copies side by side."""
    objective = toy_objective(kind)
    batch = drawn(objective)
    loss, _ = objective.loss(batch)
    logits_BRLV = plain_logits(objective, batch)
    logs_MV = logits_BRLV.log_softmax(-1).flatten(0, 2)[batch.scored_M]
    entropy_M = -logs_MV.gather(1, batch.targets_M[:, None])[:, 0]
    assert float(loss) == pytest.approx(float((entropy_M * batch.weights_M).sum()), rel=1e-4)


def test_the_loss_of_uniform_noise_is_the_bound_and_cross_entropy() -> None:
    steps, weight = 5, 0.5
    objective = toy_objective("uniform", diffusion_steps=steps, entropy_weight=weight)
    batch = drawn(objective)
    loss, _ = objective.loss(batch)
    chain = Chain.of(lambda beta: uniform_step(beta, VOCAB), betas("harmonic", steps))
    logits_MV = plain_logits(objective, batch).flatten(0, 2)[batch.scored_M].double()
    noised_M = batch.noised_BRL.flatten()[batch.scored_M]
    times_M = (batch.time_M * steps).round().long()
    probs_MV = logits_MV.softmax(-1)
    bound_M = steps * chain.step_loss(probs_MV, noised_M, batch.targets_M, times_M)
    entropy_M = -probs_MV.gather(1, batch.targets_M[:, None])[:, 0].log()
    expected = ((bound_M + weight * entropy_M) * batch.weights_M).sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-3)


def plain_logits(objective: DiscreteObjective, batch: DiscreteBatch) -> torch.Tensor:
    """Logits [B, R, L, V] of each noised copy alone with its prompt."""
    denoiser = objective._denoiser
    rows, copies, _ = batch.noised_BRL.shape
    results = []
    for row in range(rows):
        prompt_1P = batch.prompts.tokens_BT[row][batch.prompts.live_BT[row]][None]
        places_1L = batch.prompts.target_positions_BL[row][None]
        before_1P = torch.arange(prompt_1P.shape[1])[None]
        for copy in range(copies):
            noised_1L = batch.noised_BRL[row, copy][None]
            if denoiser.spec.attention == "full":
                tokens = torch.cat([prompt_1P, noised_1L], dim=1)
                places = torch.cat([before_1P, places_1L], dim=1)
                hidden, _ = denoiser.forward(tokens, places, None, None, False)
                hidden = hidden[:, prompt_1P.shape[1] :]
            else:
                past = denoiser.encode(prompt_1P, before_1P, None, None)
                hidden, _ = denoiser.forward(noised_1L, places_1L, None, past, False)
            results.append(denoiser.logits(hidden[0]))
    return torch.stack(results).view(rows, copies, LENGTH, VOCAB)


def test_targets_follow_their_prompt_or_stand_at_their_own_position() -> None:
    masked, flow = drawn(toy_objective("masked")), drawn(toy_objective("discrete-flow"))
    sizes_B = masked.prompts.live_BT.sum(1)
    assert torch.equal(masked.prompts.target_positions_BL[:, 0], sizes_B)
    assert flow.prompts.target_positions_BL[:, 0].tolist() == [DOCUMENT + 2] * 6


def test_whole_texts_are_noised_only_when_asked_for() -> None:
    batch = drawn(toy_objective("masked", whole_share=1.0))
    assert batch.prompts.tokens_BT.shape[1] == 0
    assert batch.noised_BRL.shape[2] == DOCUMENT + 2 + LENGTH
    loss, _ = toy_objective("masked", whole_share=1.0).loss(batch)
    assert bool(loss.isfinite())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_generators_give_the_same_batch(kind: Kind) -> None:
    objective = toy_objective(kind)
    first, again, other = drawn(objective, 3), drawn(objective, 3), drawn(objective, 4)
    assert torch.equal(first.noised_BRL, again.noised_BRL)
    assert torch.equal(first.weights_M, again.weights_M)
    assert not torch.equal(first.noised_BRL, other.noised_BRL)


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_the_same_seed_gives_the_same_weights(
    tmp_path: Path, kind: Kind
) -> None:
    trainers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        objective = toy_objective(kind, train=True)
        training = TrainingSettings(
            batch_rows=8, shards=1, document_tokens=DOCUMENT, peak_rate=5e-3, warmup_steps=5
        )
        model = objective._denoiser.model
        trainer = Trainer(model, objective, toy_pairs(), training, tmp_path / name)
        trainer.run(80, decay_steps=0, log_every=20)
        trainers.append(trainer)
    lines = (tmp_path / "one" / "log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < 0.8 * losses[0]
    for name, weight in trainers[0].master.items():
        assert torch.equal(weight, trainers[1].master[name]), name
