"""What the requests of a run have in common, and how they travel."""

from __future__ import annotations

from typing import Any

import pytest

from raydiff.config import CorpusSettings, TaskSettings
from raydiff.corpus.asks import Ask, WorkSettings, derived_seed, group_asks
from raydiff.request import Decoding
from raydiff.text import LengthPolicy, Tokenizer


def ask(index: int, length: int, **values: Any) -> Ask:
    return Ask(index=index, level=0, chunk=0, prompt_ids=range(length), **values)


def test_calls_are_full_longest_first_and_what_was_sent_before_goes_alone() -> None:
    asks = [ask(0, 5), ask(1, 9), ask(2, 7, attempts=1), ask(3, 1), ask(4, 8, suspect=True)]
    calls = group_asks(asks, 2)
    assert [[a.index for a in call.asks] for call in calls] == [[1, 0], [3], [4], [2]]
    assert [call.suspect for call in calls] == [False, False, True, False]


def test_a_seed_follows_from_the_run_and_the_request() -> None:
    assert derived_seed(0, "a") == derived_seed(0, "a")
    assert len({derived_seed(0, "a"), derived_seed(1, "a"), derived_seed(0, "b")}) == 3
    assert 0 <= derived_seed(0, "a") < 2**63


@pytest.mark.parametrize(
    ("kind", "combine", "overlap"),
    [("summarize", "merge", True), ("rewrite", "join", False)],
)
def test_settings_of_a_run_reach_its_requests(
    toy_model: str, kind: str, combine: str, overlap: bool
) -> None:
    settings = CorpusSettings(
        input="in",
        output="out",
        model=toy_model,
        task=TaskSettings.model_validate({"kind": kind}),
        seed=7,
        on_long="truncate",
        on_empty="skip",
        max_document_tokens=99,
        merge_depth=2,
        dedupe=False,
    )
    work = WorkSettings.of(settings, Decoding(max_tokens=16), Tokenizer.load(toy_model))
    assert work.length == LengthPolicy(on_long="truncate", max_document_tokens=99, overlap=overlap)
    assert (work.combine, work.merge_depth, work.seed) == (combine, 2, 7)
    assert (work.skip_empty, work.dedupe) == (True, False)
