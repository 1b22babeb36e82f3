"""What every test shares: a small Ray cluster of its own, and a tidy environment."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# No test asserts seconds, so no example of a property has a deadline either.
hypothesis.settings.register_profile("raydiff", deadline=None)
hypothesis.settings.load_profile("raydiff")

# Read by Ray and by OpenMP when they start, so they must be set before either is imported.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ.pop("RAY_ADDRESS", None)
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[dict[str, Any]]:
    """A local Ray cluster of four logical CPUs, never one that is already there.

    Yields the node's record; its "MetricsExportPort" is where Ray's exporter listens.
    """
    import ray

    temp_dir = tempfile.mkdtemp(prefix="rd-")  # short: sockets in it have at most 107 characters
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=256 * 2**20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=temp_dir,
    )
    try:
        yield ray.nodes()[0]
    finally:
        ray.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny model with random weights, of the bundled model's format."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    from raydiff.train.checkpoint import save_start
    from raydiff.train.tokenizer import CONTEXT_TOKENS, END_ID, PAD_ID, train_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    words = "a small library to read and write many files of data with tools for the web"
    tokenizer = train_tokenizer([words], vocab_size=320)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=CONTEXT_TOKENS,
        pad_token_id=PAD_ID,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.bias[END_ID] += 3.0  # so that texts end, early and late
    save_start(folder, tokenizer, model)
    return folder


def pytest_sessionfinish() -> None:
    """No Ray that a test started outlives the run."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()
