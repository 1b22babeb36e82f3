"""Embedding diffusion learns, keeps its embeddings apart, and ends as a checkpoint that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raydiff.engine import Engine
from raydiff.families import load_spec
from raydiff.models.embedding import EmbeddingDenoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Decoding
from raydiff.train import embedding_kinds
from raydiff.train.corpus import write_pairs
from raydiff.train.debian import Pair
from raydiff.train.embedding import EmbeddingObjective, EmbeddingSettings, log_frequencies
from raydiff.train.embedding_checkpoint import export_embedding_model
from raydiff.train.embedding_kinds import Kind, make_trainer, prepare
from raydiff.train.tokenizer import END_ID, PAD_ID
from raydiff.train.trainer import Trainer, TrainingSettings

KINDS: tuple[Kind, ...] = ("diffuseq", "diffusion-lm", "flow")
WORDS = ["a", "small", "tool", "for", "images", "sounds", "and", "files", "of", "many", "kinds"]
TRAINING = TrainingSettings(
    batch_rows=8, shards=1, document_tokens=12, peak_rate=5e-3, warmup_steps=5, embedding_rate=0.5
)
NOISING = EmbeddingSettings(copies=2, target_tokens=10)


def some_pairs(count: int = 32) -> list[Pair]:
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, size=8)) for _ in range(count)]
    return [Pair(f"p{i}", text, " ".join(text.split()[:3])) for i, text in enumerate(texts)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_pairs(folder / "train.parquet", some_pairs())
    return folder


def trainer_of(
    kind: Kind,
    work: Path,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    training: TrainingSettings = TRAINING,
    **noising: Any,
) -> Trainer[Any]:
    monkeypatch.setattr(embedding_kinds, "HIDDEN", 32)
    monkeypatch.setattr(embedding_kinds, "HEADS", 2)
    monkeypatch.setattr(embedding_kinds, "EMBEDDING_SIZE", 8)
    work.mkdir(exist_ok=True)
    parser = embedding_kinds._parser(kind)
    options = parser.parse_args(
        ["--work", str(work), "--corpus", str(corpus), "--vocab-size", "300", "--words", "random"]
    )
    pairs = prepare(kind, work, options, training.document_tokens, NOISING.target_tokens)
    settings = EmbeddingSettings(**{**vars(NOISING), **noising})
    (work / "settings.json").write_text(json.dumps({**vars(training), **vars(settings)}))
    return make_trainer(work, pairs, training, settings)


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_the_checkpoint_runs(
    kind: Kind, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    trainer = trainer_of(kind, work, corpus, monkeypatch)
    trainer.run(45, decay_steps=0, log_every=15)
    losses = [json.loads(line)["loss"] for line in (work / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.85 * losses[0]
    export_embedding_model(work, tmp_path / "model", average=False)
    spec = load_spec(tmp_path / "model")
    assert spec.prediction == embedding_kinds.SHAPES[kind].network["prediction"]
    engine = Engine.load(tmp_path / "model", dtype="fp32")
    (completion,) = engine.generate(["a small tool"], Decoding(steps=3, seed=0))
    assert completion.usage.forwards == 3


def test_a_resumed_run_ends_with_the_same_weights(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = trainer_of("flow", tmp_path / "a", corpus, monkeypatch)
    straight.run(6, decay_steps=2)
    trainer_of("flow", tmp_path / "b", corpus, monkeypatch).run(3, decay_steps=0)
    resumed = trainer_of("flow", tmp_path / "b", corpus, monkeypatch)
    resumed.load(tmp_path / "b" / "checkpoint.pt")
    resumed.run(6, decay_steps=2)
    for name, weight in straight.master.items():
        assert torch.equal(weight, resumed.master[name]), name


class TestEmbeddings:
    def test_frozen_ones_stay_and_are_exported(
        self, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = tmp_path / "work"
        trainer = trainer_of(
            "diffuseq", work, corpus, monkeypatch, embeddings="frozen", embedding_norm=False
        )
        before = trainer.model.word_embedding.weight.detach().clone()
        trainer.run(3, decay_steps=0)
        assert torch.equal(trainer.model.word_embedding.weight, before)
        export_embedding_model(work, tmp_path / "model", average=True)
        exported = load_denoiser(tmp_path / "model", device="cpu", dtype="fp32")
        assert isinstance(exported, EmbeddingDenoiser)
        torch.testing.assert_close(exported.table(), before.bfloat16().float())

    def test_normalised_ones_are_exported_with_mean_0_and_variance_1(
        self, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = tmp_path / "work"
        trainer_of("diffuseq", work, corpus, monkeypatch).run(3, decay_steps=0)
        export_embedding_model(work, tmp_path / "model", average=False)
        exported = load_denoiser(tmp_path / "model", device="cpu", dtype="fp32")
        assert isinstance(exported, EmbeddingDenoiser)
        table = exported.table()
        torch.testing.assert_close(table.mean(1), torch.zeros(len(table)), atol=0.01, rtol=0)
        torch.testing.assert_close(
            table.var(1, correction=0), torch.ones(len(table)), atol=0.02, rtol=0
        )

    def test_a_lower_rate_moves_them_less(
        self, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moved = []
        for share in (1.0, 0.1):
            training = TrainingSettings(**{**vars(TRAINING), "embedding_rate": share})
            trainer = trainer_of("diffuseq", tmp_path / str(share), corpus, monkeypatch, training)
            before = trainer.model.word_embedding.weight.detach().clone()
            trainer.run(5, decay_steps=0)
            moved.append(float((trainer.model.word_embedding.weight.detach() - before).norm()))
        assert moved[1] < moved[0] / 4

    @pytest.mark.parametrize(("weight", "collapse_pays"), [(0.0, True), (1.0, False)])
    def test_rounding_loss_keeps_them_from_collapsing(
        self,
        tmp_path: Path,
        corpus: Path,
        monkeypatch: pytest.MonkeyPatch,
        weight: float,
        collapse_pays: bool,
    ) -> None:
        """Squared error alone is least where all embeddings are one."""
        trainer = trainer_of(
            "diffuseq",
            tmp_path / "work",
            corpus,
            monkeypatch,
            embedding_norm=False,
            token_weight=0.0,
            rounding_weight=weight,
        )
        (shard,) = trainer.draw(0)
        apart, _ = trainer.objective.loss(shard)
        with torch.no_grad():
            trainer.model.word_embedding.weight.mul_(0.01)
        together, _ = trainer.objective.loss(shard)
        assert (together < apart) == collapse_pays


class TestBatches:
    @pytest.fixture
    def objective(
        self, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
    ) -> EmbeddingObjective:
        trainer = trainer_of("diffusion-lm", tmp_path / "work", corpus, monkeypatch)
        objective = trainer.objective
        assert isinstance(objective, EmbeddingObjective)
        return objective

    def test_copies_share_a_target_and_differ_in_time_and_noise(
        self, objective: EmbeddingObjective
    ) -> None:
        shard = objective.draw(np.arange(6), np.random.default_rng(0), np.random.default_rng(1))
        assert torch.equal(shard.tokens_NL[0], shard.tokens_NL[1])
        assert not torch.equal(shard.noise_NLE[0], shard.noise_NLE[1])
        assert len(shard.time_N.unique()) > 6

    def test_times_reach_where_decoding_starts_and_are_never_clean(
        self, objective: EmbeddingObjective
    ) -> None:
        times = torch.cat(
            [
                objective.draw(
                    np.arange(16), np.random.default_rng(i), np.random.default_rng(i)
                ).time_N
                for i in range(20)
            ]
        )
        assert float(times.max()) == pytest.approx(0.98)
        assert float(times.min()) > 0

    def test_what_fills_the_target_after_its_end_weighs_less(
        self, objective: EmbeddingObjective
    ) -> None:
        shard = objective.draw(np.arange(6), np.random.default_rng(0), np.random.default_rng(3))
        for tokens, weights in zip(shard.tokens_NL, shard.weights_NL, strict=True):
            ends = (tokens == END_ID).nonzero()[:, 0]
            assert (weights[: ends[0] + 1] == 1).all()
            assert (weights[ends[0] + 1 :] < 1).all()

    def test_prompts_are_padded_and_marked(self, objective: EmbeddingObjective) -> None:
        shard = objective.draw(np.arange(6), np.random.default_rng(0), np.random.default_rng(1))
        assert ((shard.prompts_BP == PAD_ID) == ~shard.prompt_live_BP).all()


def test_the_heads_bias_begins_at_log_frequencies(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of("flow", tmp_path / "work", corpus, monkeypatch)
    bias = trainer.model.lm_head.bias.detach()
    logs = log_frequencies(trainer.pairs, NOISING, len(bias))
    assert float(logs.exp().sum()) == pytest.approx(1, abs=1e-4)
    assert int(logs.argmax()) == END_ID
    torch.testing.assert_close(bias, logs - logs.mean())
