"""What request bodies may say."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from raydiff.decoding import CHOICES, Decoding
from raydiff.errors import DecodingError, UsageError
from raydiff.openai.contents import MAX_PROMPTS
from raydiff.openai.protocol import DIFFUSION_FIELDS, ChatBody, CompletionBody, parse_body


def completion(**fields: Any) -> CompletionBody:
    return parse_body(CompletionBody, {"prompt": "x", **fields})


def chat(**fields: Any) -> ChatBody:
    return parse_body(ChatBody, {"messages": [{"role": "user", "content": "x"}], **fields})


def test_an_absent_temperature_is_the_models_default_and_not_openais() -> None:
    assert completion().decoding().temperature is None


def test_diffusion_options_become_decoding_parameters() -> None:
    options = {"policy": "threshold", "steps": 4, "threshold": 0.5, "cache": "none"}
    decoding = completion(diffusion=options, max_tokens=7, stop="a").decoding()
    assert (decoding.policy, decoding.steps, decoding.threshold) == ("threshold", 4, 0.5)
    assert (decoding.cache, decoding.max_tokens, decoding.stop) == ("none", 7, ("a",))


def test_every_setting_of_decoding_is_either_a_field_or_a_diffusion_option() -> None:
    top_level = set(CompletionBody.model_fields) & {f.name for f in fields(Decoding)}
    assert top_level == {
        *("max_tokens", "min_tokens", "ignore_eos", "temperature"),
        *("top_p", "top_k", "seed", "stop"),
    }
    assert set(DIFFUSION_FIELDS) | top_level == {f.name for f in fields(Decoding)}


@pytest.mark.parametrize("name", DIFFUSION_FIELDS)
def test_each_diffusion_option_takes_its_values_and_refuses_others_by_its_path(name: str) -> None:
    choice = CHOICES[name]
    value = choice.of[-1] if choice.of else {bool: True, int: 2, float: 0.5}[choice.kind]
    assert completion(diffusion={name: value}).decoding() == Decoding(**{name: value})
    for wrong in ([value], {"a": 1}, "no such value", 1e9 if choice.kind is not int else -1):
        if not choice.allows(wrong):
            with pytest.raises(DecodingError, match=name) as caught:
                completion(diffusion={name: wrong}).decoding()
            assert caught.value.param == f"diffusion.{name}"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"foo": 1}, "foo"),
        ({"diffusion": []}, "diffusion"),
        ({"diffusion": {"temperature": 1}}, "diffusion.temperature"),
        ({"diffusion": {"foo": 1}}, "diffusion.foo"),
        ({"stream": True, "stream_options": {"foo": True}}, "stream_options.foo"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"echo": 1}, "echo"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"user": "x" * 513}, "user"),
        ({"diffusing": True}, "diffusing"),
        ({"diffusing": True, "stream": True, "logprobs": 0}, "diffusing"),
        ({"metadata": {"a": "b"}}, "metadata"),
        ({"store": True}, "store"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"suffix": "tail"}, "suffix"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"temperature": "0.5"}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a", 5]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["x"] * (MAX_PROMPTS + 1)}, "prompt"),
        ({"prompt": None}, "prompt"),
    ],
)
def test_what_is_unknown_unsupported_or_of_the_wrong_type_is_refused_by_name(
    given: dict[str, Any], param: str
) -> None:
    with pytest.raises(UsageError) as caught:
        completion(**given)
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"diffusion": {"steps": 0}}, "diffusion.steps"),
        ({"diffusion": {"threshold": 2}}, "diffusion.threshold"),
        ({"diffusion": {"policy": "greedy"}}, "diffusion.policy"),
        ({"diffusion": {"policy": "quota", "threshold": 0.5}}, "diffusion.threshold"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": 5}, "stop"),
        ({"seed": -1}, "seed"),
    ],
)
def test_an_impossible_decoding_value_names_its_path_in_the_body(
    given: dict[str, Any], param: str
) -> None:
    with pytest.raises(DecodingError) as caught:
        completion(**given).decoding()
    assert caught.value.param == param


def test_null_means_absent_wherever_it_stands() -> None:
    fields = {"n": None, "logprobs": None, "foo": None, "max_tokens": None, "stop": None}
    body = completion(**fields, diffusion={"steps": None, "bar": None}, stream_options=None)
    assert body == completion()


def test_values_that_ask_for_nothing_pass() -> None:
    neutral = {"n": 1, "best_of": 1, "echo": False, "presence_penalty": 0.0, "suffix": ""}
    assert completion(**neutral, logit_bias={}, repetition_penalty=1.0) == completion()
    assert chat(tools=[], response_format={"type": "text"}, logprobs=False) == chat()


def test_what_load_generators_send_is_understood() -> None:
    body = completion(
        ignore_eos=True,
        min_tokens=3,
        top_k=-1,
        stream=True,
        stream_options={"include_usage": True},
    )
    decoding = body.decoding()
    assert (decoding.ignore_eos, decoding.min_tokens, decoding.top_k) == (True, 3, 0)
    assert body.include_usage


@pytest.mark.parametrize(
    ("prompt", "rows"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [(1, 2)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        ("", [""]),
    ],
)
def test_a_prompt_is_a_string_or_tokens_or_a_list_of_either(prompt: Any, rows: Any) -> None:
    assert completion(prompt=prompt).prompt == rows


def test_chat_content_may_come_in_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = chat(messages=[{"role": "system", "content": "s"}, {"role": "user", "content": parts}])
    assert body.texts() == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a\nb"},
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages.0.content"),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]},
            "messages.0.content",
        ),
        ({"role": "robot", "content": "a"}, "messages.0.role"),
        ({"role": "user"}, "messages.0.content"),
        ({"role": "user", "content": "a", "mood": "good"}, "messages.0.mood"),
        ({"role": "assistant", "content": "a", "tool_calls": [{}]}, "messages.0.tool_calls"),
        ("hello", "messages.0"),
    ],
)
def test_a_message_that_is_not_text_is_refused_by_its_path(message: Any, param: str) -> None:
    with pytest.raises(UsageError) as caught:
        chat(messages=[message])
    assert caught.value.param == param


def test_a_message_of_an_earlier_answer_can_be_sent_back() -> None:
    message = {"role": "assistant", "content": "a", "refusal": None, "annotations": []}
    assert chat(messages=[message]).texts() == [{"role": "assistant", "content": "a"}]


def test_no_messages_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        chat(messages=[])
    assert caught.value.param == "messages"


def test_max_completion_tokens_is_the_newer_name_of_max_tokens() -> None:
    assert chat(max_completion_tokens=9).decoding().max_tokens == 9
    assert chat(max_completion_tokens=9, max_tokens=9).decoding().max_tokens == 9
    with pytest.raises(DecodingError) as caught:
        chat(max_completion_tokens=9, max_tokens=8).decoding()
    assert caught.value.param == "max_completion_tokens"


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(UsageError, match="JSON object"):
        parse_body(CompletionBody, ["prompt"])
