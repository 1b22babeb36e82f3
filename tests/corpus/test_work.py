"""Documents become requests, requests summaries or failures, one outcome per row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.dedupe import Answer, ResultIndex
from raydiff.corpus.plan import Shard, Span
from raydiff.corpus.reading import Rejected
from raydiff.corpus.work import Call, ShardWork, Summary, WorkSettings
from raydiff.request import Completion, Decoding, FinishReason
from raydiff.text import DocumentPrompts, LengthPolicy, PromptStyle, Tokenizer

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
    style: PromptStyle | None = None,
    values: list[dict[str, str]] | None = None,
) -> ShardWork:
    prompts = DocumentPrompts.styled(tokenizer, style or PromptStyle(), 16)
    shard = Shard(
        shard_id="000000-00000000", spans=(Span(file=file, row_start=0, rows=len(texts)),)
    )
    return ShardWork(shard, texts, prompts, work_settings, values)


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


def test_the_seed_follows_from_the_content_or_without_dedupe_from_the_place(
    tokenizer: Tokenizer,
) -> None:
    def seeds(texts: list[str | Rejected], file: str, *, dedupe: bool) -> list[int | None]:
        work = make_work(tokenizer, texts, replace(SETTINGS, dedupe=dedupe), file)
        asks = [ask for call in work.next_calls() for ask in call.asks]
        return [work.request(ask).decoding.seed for ask in asks]

    assert seeds(["a"], "a.parquet", dedupe=True) == seeds(["a"], "b.parquet", dedupe=True)
    assert seeds(["a"], "a.parquet", dedupe=True) != seeds(["b"], "a.parquet", dedupe=True)
    assert seeds(["a"], "a.parquet", dedupe=False) != seeds(["a"], "b.parquet", dedupe=False)
    assert seeds(["a"], "a.parquet", dedupe=False) == seeds(["b"], "a.parquet", dedupe=False)
    assert len(set(seeds(["a", "a"], "a.parquet", dedupe=False))) == 2


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


# --- equal documents


def test_equal_documents_are_generated_once_and_counted(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a b", "c", "a b", "a b"])
    calls = finish(work, tokenizer)
    assert [ask.index for call in calls for ask in call.asks] == [0, 1]
    assert work.summaries[0] == work.summaries[2] == work.summaries[3]
    assert work.totals.duplicates == 2
    assert work.totals.completion_tokens == 10


@settings(deadline=None, max_examples=30)
@given(
    texts=st.lists(st.sampled_from(["a", "b", "c d " * 40, f"{POISON} x", "e"]), max_size=12),
    data=st.data(),
)
def test_a_copied_result_is_what_would_have_been_generated(
    tokenizer: Tokenizer, texts: list[str | Rejected], data: st.DataObject
) -> None:
    """Shards that share results have the rows of shards that do not."""
    cut = data.draw(st.integers(0, len(texts)))
    index = ResultIndex()
    shards = [texts[:cut], texts[cut:]]
    for number, part in enumerate(shards):
        alone, sharing = make_work(tokenizer, part), make_work(tokenizer, part)
        finish(alone, tokenizer)
        keys = sharing.claimable
        sharing.take(dict(zip(keys, index.claim(f"{number}", keys), strict=True)))
        finish(sharing, tokenizer)
        index.settle(f"{number}", *sharing.settlement())
        assert sharing.summaries == alone.summaries
        assert sharing.failures == alone.failures
    index.close()


def test_what_another_shard_generates_is_not_sent_until_that_gives_it_up(
    tokenizer: Tokenizer,
) -> None:
    def answers(*known: Answer) -> dict[bytes, Answer]:
        return dict(zip(work.claimable, known, strict=True))

    work = make_work(tokenizer, ["a", "b", "a"])
    work.take(answers("taken", "yours"))
    calls = finish(work, tokenizer)
    assert [ask.index for call in calls for ask in call.asks] == [1]
    assert (set(work.summaries), work.waiting) == ({1}, True)
    work.take(answers("taken"))
    assert work.next_calls() == []
    work.take(answers("yours"))
    finish(work, tokenizer)
    assert (set(work.summaries), work.waiting) == ({0, 1, 2}, False)


def test_a_result_of_another_shard_is_taken_for_all_who_are_equal(tokenizer: Tokenizer) -> None:
    first, second = make_work(tokenizer, ["a"]), make_work(tokenizer, ["a", "b", "a"])
    finish(first, tokenizer)
    results, failed = first.settlement()
    assert (len(results), failed) == (1, [])
    key = second.claimable[0]
    second.take({key: results[key]})
    assert second.summaries == {0: first.summaries[0], 2: first.summaries[0]}
    assert second.totals.duplicates == 2
    assert second.totals.prompt_tokens == 0


def test_when_a_document_fails_its_twin_is_tried(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "a"], replace(SETTINGS, max_attempts=1))
    (call,) = work.next_calls()
    work.fail(call.asks[0], "DeadlineExceeded", "late")
    finish(work, tokenizer)
    assert (set(work.failures), set(work.summaries)) == ({0}, {1})
    assert len(work.settlement()[0]) == 1


def test_a_condemned_document_takes_its_twins_along(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "b", "a"])
    (call,) = work.next_calls()
    work.condemn(call.asks[0], "ReplicaDied", "It died.", 3)
    assert set(work.failures) == {0, 2}
    assert work.failures[2].attempts == 3
    assert work.settlement() == ({}, [work._contents.key(0)])


def test_without_dedupe_nothing_is_shared(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "a"], replace(SETTINGS, dedupe=False))
    assert work.claimable == []
    finish(work, tokenizer)
    assert work.totals.duplicates == 0
    assert work.summaries[0] != work.summaries[1]


# --- long, empty and broken documents

LONG = "alpha beta gamma. " * 30


def test_a_document_longer_than_allowed_fails_without_being_sent(tokenizer: Tokenizer) -> None:
    strict = replace(SETTINGS, length=LengthPolicy(on_long="fail"))
    work = make_work(tokenizer, ["fine", LONG], strict)
    calls = finish(work, tokenizer)
    assert [ask.index for call in calls for ask in call.asks] == [0]
    failure = work.failures[1]
    assert (failure.error_type, failure.attempts) == ("DocumentTooLong", 0)
    assert failure.message == "text: expected at most 64 tokens, got 540."


def test_a_truncated_document_is_one_request_and_marked(tokenizer: Tokenizer) -> None:
    work = make_work(
        tokenizer, ["fine", LONG], replace(SETTINGS, length=LengthPolicy(on_long="truncate"))
    )
    calls = finish(work, tokenizer)
    assert sum(len(call.asks) for call in calls) == 2
    assert [work.summaries[i].truncated for i in (0, 1)] == [False, True]
    assert work.summaries[1].chunks == 1


def test_a_document_beyond_its_budget_is_read_up_to_it_and_marked(tokenizer: Tokenizer) -> None:
    budget = replace(SETTINGS, length=LengthPolicy(max_document_tokens=150))
    work = make_work(tokenizer, [LONG], budget)
    calls = finish(work, tokenizer)
    first = [ask for call in calls for ask in call.asks if ask.level == 0]
    assert work.summaries[0].truncated
    assert work.summaries[0].chunks == len(first) <= 4


def test_the_depth_of_a_merge_is_bounded_and_what_that_costs_is_marked(
    tokenizer: Tokenizer,
) -> None:
    def levels(depth: int) -> tuple[int, bool]:
        work = make_work(tokenizer, [LONG * 4], replace(SETTINGS, merge_depth=depth))
        calls = finish(work, tokenizer)
        deepest = max(ask.level for call in calls for ask in call.asks)
        return deepest, work.summaries[0].truncated

    assert levels(1) == (1, True)
    deepest, truncated = levels(8)
    assert 1 < deepest < 8
    assert not truncated


def test_empty_documents_fail_or_have_an_empty_answer(tokenizer: Tokenizer) -> None:
    empty = Rejected(error_type="EmptyDocument", message="empty")
    broken = Rejected(error_type="InvalidUtf8", message="broken", attempts=2)
    texts: list[str | Rejected] = [empty, NULL, broken, "a"]
    failing, skipping = (
        make_work(tokenizer, texts, replace(SETTINGS, skip_empty=skip)) for skip in (False, True)
    )
    for work in (failing, skipping):
        finish(work, tokenizer)
    assert set(failing.failures) == {0, 1, 2}
    assert failing.failures[2].attempts == 2
    assert set(skipping.failures) == {2}
    summary = skipping.summaries[0]
    assert (summary.text, summary.chunks, summary.totals.forwards) == ("", 0, 0)


class Breaking(Tokenizer):
    """Breaks on a word, in documents and in summaries of them."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if any("BREAK" in text for text in texts):
            raise RuntimeError("index out of bounds")
        return super().encode_batch(texts)


def test_a_document_that_breaks_the_tokenizer_fails_alone(toy_model: str) -> None:
    breaking = Breaking.load(toy_model)
    work = make_work(breaking, ["fine", "BREAK", "BREAK", LONG + "BREAK", "too"])
    finish(work, breaking)
    assert set(work.summaries) == {0, 4}
    assert {f.error_type for f in work.failures.values()} == {"TokenizerError"}


def test_summaries_that_break_the_tokenizer_cost_their_document(toy_model: str) -> None:
    breaking = Breaking.load(toy_model)
    work = make_work(breaking, [LONG, "fine"])
    for call in work.next_calls():
        for ask in call.asks:
            completion = fake_completion(work.request(ask), "x")
            work.succeed(ask, replace(completion, text="BREAK"))
    assert (set(work.summaries), set(work.failures)) == ({1}, {0})
    assert work.failures[0].error_type == "TokenizerError"


# --- other tasks


def test_rewritten_chunks_are_joined_in_order_as_they_stood(tokenizer: Tokenizer) -> None:
    joining = replace(SETTINGS, combine="join", length=LengthPolicy(overlap=False))
    text = "\n\n".join(f"Paragraph {n} has so many words that it is long." for n in range(8))
    work = make_work(tokenizer, [text], joining)
    while calls := work.next_calls():
        for call in calls:
            for ask in call.asks:
                same = tokenizer.decode(list(ask.prompt_ids)[1:-1]).upper()
                work.succeed(ask, replace(fake_completion(work.request(ask), ""), text=same))
    assert work.summaries[0].text == text.upper()
    assert work.summaries[0].chunks > 1


def test_labels_of_chunks_vote_and_nothing_else_can_be_asked_for(tokenizer: Tokenizer) -> None:
    """The answer is the label as it was given, whatever its tokens spell."""
    labels = {(5, 6): "Rare", (5, 7): "Common"}
    voting = replace(SETTINGS, combine="vote", labels=labels, answer_column="label")
    work = make_work(tokenizer, [LONG, LONG], voting)
    asks = [ask for call in work.next_calls() for ask in call.asks]
    assert len(asks) > 2
    for ask in asks:
        request = work.request(ask)
        assert request.choices == ((5, 6), (5, 7))
        chosen = (5, 6) if ask.chunk == 0 else (5, 7)
        work.succeed(
            ask,
            replace(fake_completion(request, ""), token_ids=chosen, choice_probability=0.75),
        )
    assert work.next_calls() == []
    for summary in work.summaries.values():
        assert summary.text == "Common"
        assert summary.probability == pytest.approx(0.75 * (len(asks) - 1) / len(asks))
        assert Summary.from_bytes(summary.to_bytes()) == summary


def test_an_answer_that_is_no_label_fails_its_document_and_nothing_else(
    tokenizer: Tokenizer,
) -> None:
    voting = replace(SETTINGS, combine="vote", labels={(5, 6): "Rare", (5, 7): "Common"})
    work = make_work(tokenizer, ["a"], voting)
    while calls := work.next_calls():
        for ask in (ask for call in calls for ask in call.asks):
            work.succeed(ask, replace(fake_completion(work.request(ask), "x"), token_ids=(5,)))
    failure = work.failures[0]
    assert (failure.error_type, failure.attempts) == ("EngineError", 3)
    assert failure.message == "label: expected one of 2 labels, got 1 other tokens."


def test_without_dedupe_no_result_leaves_the_shard(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "a", f"{POISON} x"], replace(SETTINGS, dedupe=False))
    finish(work, tokenizer)
    assert (set(work.summaries), set(work.failures)) == ({0, 1}, {2})
    assert work.settlement() == ({}, [])


def test_an_answer_cut_for_its_length_shows_in_the_row(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, [LONG], replace(SETTINGS, combine="join"))
    asks = [ask for call in work.next_calls() for ask in call.asks]
    for ask in asks:
        completion = fake_completion(work.request(ask), "x")
        reason: FinishReason = "length" if ask.chunk == 0 else "stop"
        work.succeed(ask, replace(completion, finish_reason=reason))
    assert work.summaries[0].finish_reason == "length"


def test_columns_stand_in_the_prompt_and_count_as_content(tokenizer: Tokenizer) -> None:
    style = PromptStyle(template="{t}: {text}", merge_template="{t}: {text}")
    values = [{"t": "A"}, {"t": "B"}, {"t": "A"}, {"t": "much too long " * 9}]
    work = make_work(tokenizer, ["x", "x", "x", "y"], style=style, values=values)
    calls = work.next_calls()
    sent = {
        ask.index: tokenizer.decode(list(ask.prompt_ids)[1:-1]) for c in calls for ask in c.asks
    }
    assert sent == {0: "A: x", 1: "B: x"}
    assert work.failures[3].error_type == "DocumentTooLong"


# --- suspects


def test_suspects_are_sent_alone_and_not_charged(tokenizer: Tokenizer) -> None:
    work = make_work(tokenizer, ["a", "b", "c"])
    (call,) = work.next_calls()
    work.suspect(call.asks[0])
    work.suspect(call.asks[1])
    answer(work, tokenizer, Call(asks=call.asks[2:]))
    again = work.next_calls()
    assert [(len(c.asks), c.suspect, c.asks[0].attempts) for c in again] == [(1, True, 0)] * 2


def test_isolated_documents_are_sent_alone_chunk_by_chunk_and_level_by_level(
    tokenizer: Tokenizer,
) -> None:
    work = make_work(tokenizer, [LONG, "a", "b"])
    work.isolate([0])
    calls = finish(work, tokenizer)
    assert all(call.suspect and len(call.asks) == 1 for call in calls if call.asks[0].index == 0)
    assert [len(call.asks) for call in calls if call.asks[0].index] == [2]


def test_nothing_is_tokenized_before_the_documents_are_begun(toy_model: str) -> None:
    breaking = Breaking.load(toy_model)
    work = make_work(breaking, ["BREAK"])
    assert work.failures == {}
    work.begin()
    assert set(work.failures) == {0}
