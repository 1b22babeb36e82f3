"""What callers send and what they read."""

from __future__ import annotations

import json

from raydiff.bench.serving.callers import StreamReader, body_of, decoding_of, whole_answer
from raydiff.bench.serving.loads import Ask, Load

ONE = Ask(index=0, texts=("a",), prompts=((1,),))
TWO = Ask(index=0, texts=("a", "b"), prompts=((1,), (2,)))


def _line(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n"


def test_one_prompt_is_a_string_and_several_are_a_list() -> None:
    assert body_of(ONE, Load(asks=(ONE,)), "m") == {"model": "m", "prompt": "a"}
    assert body_of(TWO, Load(asks=(TWO,)), "m")["prompt"] == ["a", "b"]


def test_fixed_lengths_forbid_an_earlier_end_over_http_and_without() -> None:
    load = Load(asks=(ONE,), output_tokens=7)
    body = body_of(ONE, load, "m")
    asked = decoding_of(load)
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (7, 7, True)
    assert (asked.max_tokens, asked.min_tokens, asked.ignore_eos) == (7, 7, True)


def test_the_batch_lane_is_asked_for_by_the_service_tier() -> None:
    assert body_of(ONE, Load(asks=(ONE,), lane="batch"), "m")["service_tier"] == "flex"


def test_the_first_text_of_a_stream_is_no_empty_chunk() -> None:
    reader = StreamReader()
    reader.take(_line({"choices": [{"index": 0, "text": ""}]}))
    assert reader.first_s is None
    reader.take(_line({"choices": [{"index": 0, "text": "x"}]}))
    assert reader.first_s is not None


def test_a_streams_tokens_are_those_of_its_usage() -> None:
    reader = StreamReader()
    for body in (
        {"choices": [{"text": "x"}]},
        {"choices": [], "usage": {"completion_tokens": 12}},
    ):
        reader.take(_line(body))
    reader.take(b"data: [DONE]\n")
    assert reader.answer().status == 200
    assert reader.answer().tokens == 12


def test_a_stream_that_breaks_or_ends_with_an_error_failed() -> None:
    broken = StreamReader()
    broken.take(_line({"choices": [{"text": "x"}]}))
    assert broken.answer().status == 0
    failed = StreamReader()
    failed.take(_line({"error": {"message": "The engine failed."}}))
    failed.take(b"data: [DONE]\n")
    assert failed.answer().status == 0


def test_a_whole_answers_tokens_are_those_of_its_usage() -> None:
    raw = json.dumps({"usage": {"completion_tokens": 3}}).encode()
    assert whole_answer(raw).tokens == 3
