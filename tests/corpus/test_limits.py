"""A run that goes wrong is ended, but not by its first few documents."""

from __future__ import annotations

import pytest

from raydiff.corpus.limits import FailureLimit
from raydiff.errors import TooManyFailures


def test_more_failures_than_allowed_end_the_run() -> None:
    limit = FailureLimit(0.1, documents=0, failed=0)
    for _ in range(10):
        limit.add(10, 1)
    with pytest.raises(TooManyFailures, match=r"12 of 110 documents failed.*0\.1 allows"):
        limit.add(10, 2)


def test_the_first_documents_say_nothing_yet() -> None:
    limit = FailureLimit(0.1, documents=0, failed=0)
    limit.add(99, 99)
    with pytest.raises(TooManyFailures):
        limit.add(1, 0)


def test_earlier_starts_count() -> None:
    limit = FailureLimit(0.5, documents=1000, failed=500)
    with pytest.raises(TooManyFailures):
        limit.add(1, 1)


def test_without_a_limit_all_may_fail() -> None:
    FailureLimit(1.0, documents=0, failed=0).add(500, 500)
