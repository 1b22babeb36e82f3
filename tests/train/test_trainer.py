"""A training run can stop anywhere and go on as if it had not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from raydiff.models.bert import BertDenoiser
from raydiff.models.loading import random_denoiser
from raydiff.train.batches import TokenisedPairs
from raydiff.train.objective import BlockObjective, BlockSettings, NoisedBatch
from raydiff.train.trainer import Trainer, TrainingSettings, rate_at

SETTINGS = TrainingSettings(batch_rows=4, warmup_steps=2, peak_rate=1e-2, document_tokens=20)


def tiny_pairs() -> TokenisedPairs:
    generator = np.random.default_rng(0)
    rows = [generator.integers(4, 64, size=generator.integers(4, 20)) for _ in range(24)]
    return TokenisedPairs(documents=rows, summaries=[row[:6] for row in rows], groups=np.arange(24))


def objective(denoiser: BertDenoiser) -> BlockObjective:
    settings = BlockSettings(copies=2, target_position=48)
    return BlockObjective(denoiser, tiny_pairs(), settings, SETTINGS.document_tokens)


def tiny_trainer(folder: Path, optimizer: str = "adamw") -> Trainer[NoisedBatch]:
    folder.mkdir(exist_ok=True)
    start = random_denoiser(seed=0, block_length=32)
    model = start.model.requires_grad_(True)
    settings = TrainingSettings(**{**vars(SETTINGS), "optimizer": optimizer})
    denoiser = BertDenoiser(model, start.spec, fuse=False)
    return Trainer(model, objective(denoiser), tiny_pairs(), settings, folder)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path, optimizer: str) -> None:
    straight = tiny_trainer(tmp_path / "straight", optimizer)
    straight.run(8, decay_steps=4)
    first = tiny_trainer(tmp_path / "resumed", optimizer)
    first.run(3, decay_steps=0)
    second = tiny_trainer(tmp_path / "resumed", optimizer)
    second.load(tmp_path / "resumed" / "checkpoint.pt")
    second.run(8, decay_steps=4)
    for name, weight in straight.master.items():
        assert torch.equal(weight, second.master[name]), name
        assert torch.equal(straight.average[name], second.average[name]), name


def test_training_lowers_the_loss_and_logs_it(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    trainer.run(60, decay_steps=0, log_every=20)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [20, 40, 60]
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_a_stop_is_heeded_after_the_step_in_progress_and_saved(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path)
    trainer.stop()
    trainer.run(100, decay_steps=0)
    assert trainer.step == 0
    assert (tmp_path / "checkpoint.pt").exists()


def test_the_rate_warms_up_stays_and_falls_to_zero() -> None:
    rates = [rate_at(step, 10, 4, SETTINGS) / SETTINGS.peak_rate for step in range(10)]
    assert rates == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    assert rate_at(500, 1000, 0, SETTINGS) == SETTINGS.peak_rate


def test_low_precision_weights_follow_the_master(tmp_path: Path) -> None:
    start = random_denoiser(seed=0, block_length=32)
    model = start.model.to(torch.bfloat16).requires_grad_(True)
    denoiser = BertDenoiser(model, start.spec, fuse=False)
    trainer = Trainer(model, objective(denoiser), tiny_pairs(), SETTINGS, tmp_path)
    trainer.run(3, decay_steps=0)
    for name, weight in trainer.named.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, trainer.master[name].to(torch.bfloat16))
