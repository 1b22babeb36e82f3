"""Rates are those of the time at work."""

from __future__ import annotations

import numpy as np

from raydiff.corpus.ledger import SCHEMA, shard_table
from raydiff.corpus.showing import _recent_rates, _time_at_work


def test_pauses_between_starts_are_no_work() -> None:
    started = np.array([0.0, 5.0, 1000.0, 1001.0])
    finished = np.array([10.0, 12.0, 1010.0, 1003.0])
    assert _time_at_work(started, finished) == 22.0


def test_a_run_without_a_commit_has_no_rate() -> None:
    rates = _recent_rates(shard_table(SCHEMA.empty_table()))
    assert rates == {"documents_per_s": 0.0, "output_tokens_per_s": 0.0}
