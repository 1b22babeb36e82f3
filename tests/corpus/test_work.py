"""Documents become requests, requests summaries or failures, one outcome per row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.reading import Rejected
from raydiff.corpus.work import Call, ShardWork, WorkSettings
from raydiff.request import Completion, Decoding
from raydiff.text import DocumentPrompts, Tokenizer

from .conftest import MAX_PROMPT_TOKENS
from .fakes import POISON, fake_completion, fake_summary

SETTINGS = WorkSettings(
    decoding=Decoding(max_tokens=16, steps=4), seed=0, documents_per_call=4, max_attempts=3
)
NULL = Rejected(error_type="NullDocument", message="null")


@pytest.fixture(scope="module")
def tokenizer(toy_model: str) -> Tokenizer:
    return Tokenizer.load(toy_model)


def make_work(
    tokenizer: Tokenizer,
    texts: list[str | Rejected],
    work_settings: WorkSettings = SETTINGS,
    file: str = "a.parquet",
) -> ShardWork:
    prompts = DocumentPrompts.of(tokenizer, None, 16)
    shard = Shard(
        shard_id="000000-00000000", spans=(Span(file=file, row_start=0, rows=len(texts)),)
    )
    return ShardWork(shard, texts, prompts, work_settings)


def answer(work: ShardWork, tokenizer: Tokenizer, call: Call) -> None:
    for ask in call.asks:
        request = work.request(ask)
        work.succeed(ask, fake_completion(request, tokenizer.decode(request.prompt_ids[1:-1])))


def finish(work: ShardWork, tokenizer: Tokenizer) -> list[Call]:
    calls = []
    while batch := work.next_calls():
        for call in batch:
            calls.append(call)
            answer(work, tokenizer, call)
    return calls


documents = st.one_of(st.text(min_size=1, max_size=400), st.just(f"{POISON} x"), st.just(NULL))


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(documents, max_size=20))
def test_every_row_has_exactly_one_outcome(
    tokenizer: Tokenizer, texts: list[str | Rejected]
) -> None:
    texts = [t for t in texts if isinstance(t, Rejected) or t.strip()]
    work = make_work(tokenizer, texts)
    finish(work, tokenizer)
    assert sorted([*work.summaries, *work.failures]) == list(range(len(texts)))


def test_calls_are_full_and_longest_first(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["x" * n for n in (3, 9, 1, 7, 5, 2)])
    lengths = [[len(a.prompt_ids) - 2 for a in call.asks] for call in work.next_calls()]
    assert lengths == [[9, 7, 5, 3], [2, 1]]


def test_prompts_fit_the_model_however_long_the_document(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["word and word. " * 400, "ünïcödé " * 50, "x" * 3000])
    calls = finish(work, tokenizer)
    assert max(len(a.prompt_ids) for call in calls for a in call.asks) <= MAX_PROMPT_TOKENS
    assert set(work.summaries) == {0, 1, 2}


def test_a_long_document_is_summarised_in_chunks_and_merged(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["alpha beta gamma. " * 30])
    calls = finish(work, tokenizer)
    levels = Counter(ask.level for call in calls for ask in call.asks)
    summary = work.summaries[0]
    assert levels[0] == summary.chunks > 1
    assert levels[max(levels)] == 1
    requests = sum(levels.values())
    assert summary.totals.completion_tokens == 5 * requests
    assert summary.totals.forwards == 2 * requests


def test_a_summary_that_never_shrinks_still_ends(tokenizer: Tokenizer) -> None:
    """The model answers with as many words as it is given."""
    work = make_work(tokenizer, ["alpha beta gamma delta. " * 100])
    sent = 0
    while batch := work.next_calls():
        for call in batch:
            for ask in call.asks:
                sent += 1
                completion = fake_completion(work.request(ask), "")
                work.succeed(ask, replace(completion, text="y" * 60))
    assert 0 in work.summaries
    assert sent < 2000


def test_the_same_row_has_the_same_seed_whatever_its_shard(tokenizer: Tokenizer) -> None:
    def seeds(texts: list[str | Rejected], **changes: object) -> dict[int, int | None]:
        work = make_work(tokenizer, texts, replace(SETTINGS, **changes))  # type: ignore[arg-type]  # the test chooses fields
        asks = [ask for call in work.next_calls() for ask in call.asks]
        return {ask.index: work.request(ask).decoding.seed for ask in asks}

    alone, among = seeds(["a"]), seeds(["a", "b", "c"])
    assert among[0] == alone[0]
    assert len(set(among.values())) == 3
    assert seeds(["a"], seed=1) != alone
    assert seeds(["a"], documents_per_call=1) == alone


def test_another_file_has_other_seeds(tokenizer: Tokenizer) -> None:
    def seed(file: str) -> int | None:
        work = make_work(tokenizer, ["a"], file=file)
        return work.request(work.next_calls()[0].asks[0]).decoding.seed

    assert seed("a.parquet") != seed("b.parquet")


def test_sending_again_repeats_request_and_seed(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "b"])
    (call,) = work.next_calls()
    before = [work.request(ask) for ask in call.asks]
    for ask in call.asks:
        work.fail(ask, "Overloaded", "busy", by_service=True)
    again = work.next_calls()
    assert [work.request(call.asks[0]) for call in again] == before
    assert [len(call.asks) for call in again] == [1, 1]


def test_after_max_attempts_a_document_has_failed(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["fine", f"{POISON} x"])
    calls = finish(work, tokenizer)
    assert set(work.summaries) == {0}
    failure = work.failures[1]
    assert (failure.error_type, failure.attempts) == ("EngineError", 3)
    assert failure.message == "the document is poison"
    assert sum(ask.index == 1 for call in calls for ask in call.asks) == 3


def test_a_failed_chunk_fails_its_document_and_stops_the_rest(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["alpha beta. " * 40], replace(SETTINGS, max_attempts=1))
    first, *others = work.next_calls()
    work.fail(first.asks[0], "EngineError", "no")
    assert not any(work.wanted(ask) for call in others for ask in call.asks)
    for call in others:
        answer(work, tokenizer, call)
    assert (work.next_calls(), work.summaries, set(work.failures)) == ([], {}, {0})


def test_only_a_broken_service_makes_suspects(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "b"])
    (call,) = work.next_calls()
    work.fail(call.asks[0], "EngineError", "crash", by_service=True, suspect=True)
    work.fail(call.asks[1], "DeadlineExceeded", "late", by_service=True)
    assert [call.suspect for call in work.next_calls()] == [True, False]


def test_a_cancelled_completion_is_sent_again(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a"])
    (call,) = work.next_calls()
    completion: Completion = fake_completion(work.request(call.asks[0]), "a")
    work.succeed(call.asks[0], replace(completion, finish_reason="cancelled", text=""))
    finish(work, tokenizer)
    seed = work.request(call.asks[0]).decoding.seed
    assert work.summaries[0].text == fake_summary("a", seed or 0)
