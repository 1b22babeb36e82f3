"""Several answers to one request, and several events of one stream."""

from __future__ import annotations

from raydiff.decoding import MAX_SEED
from raydiff.request import Completion, Event, TokenLogprob, Usage, choice_seed


def usage(tokens: int) -> Usage:
    return Usage(prompt_tokens=1, completion_tokens=tokens, forwards=tokens)


def test_the_first_choice_has_the_requests_seed_and_the_others_their_own() -> None:
    seeds = [choice_seed(7, i) for i in range(100)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 100
    assert all(seed is not None and 0 <= seed <= MAX_SEED for seed in seeds)
    assert seeds == [choice_seed(7, i) for i in range(100)]
    assert choice_seed(8, 1) not in seeds


def test_a_choices_seed_is_the_same_in_every_version() -> None:
    assert choice_seed(0, 1) == 2970253689385304826


def test_without_a_seed_no_choice_has_one() -> None:
    assert [choice_seed(None, i) for i in range(3)] == [None] * 3


def test_merged_events_lose_no_text_and_show_the_latest_state() -> None:
    first = Event(
        request_id="r",
        text="ab",
        logprobs=(TokenLogprob(token_id=1, logprob=-1.0),),
        usage=usage(1),
        snapshot="ab░",
    )
    second = Event(
        request_id="r",
        text="c",
        logprobs=(TokenLogprob(token_id=2, logprob=-2.0),),
        usage=usage(2),
        snapshot="abc",
    )
    both = first.then(second)
    assert (both.text, both.snapshot, both.usage) == ("abc", "abc", usage(2))
    assert [p.token_id for p in both.logprobs] == [1, 2]
    done = Completion(
        request_id="r", text="abc", token_ids=(1, 2), finish_reason="stop", usage=usage(2)
    )
    last = both.then(Event(request_id="r", completion=done))
    assert (last.completion, last.text, last.snapshot) == (done, "abc", "abc")
