"""Every field of OpenAI's API is honoured or refused by name, and the document says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

import raydiff.serve
from raydiff.errors import UsageError
from raydiff.openai.protocol import ChatBody, CompletionBody, GenerationBody, parse_body
from raydiff.openai.schemas import body_schema
from raydiff.openai.unsupported import IN_BODY

KINDS: dict[type[GenerationBody], Any] = {
    ChatBody: chat_create_params,
    CompletionBody: completion_create_params,
}
SOUND: dict[type[GenerationBody], dict[str, Any]] = {
    ChatBody: {"messages": [{"role": "user", "content": "x"}]},
    CompletionBody: {"prompt": "x"},
}
ASKS = {"anything": ["that", {"no": "field"}, "accepts"]}
"""A value that is neutral for no field."""


def fields_of(kind: type[GenerationBody]) -> set[str]:
    """The fields that OpenAI's own client knows."""
    return {*KINDS[kind].CompletionCreateParamsBase.__annotations__, "stream"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_openais_client_sends_is_in_the_document(
    kind: type[GenerationBody],
) -> None:
    assert fields_of(kind) <= set(body_schema(kind)["properties"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_openais_client_sends_is_checked_by_name(
    kind: type[GenerationBody],
) -> None:
    for name in sorted(fields_of(kind) - {"stop"}):
        with pytest.raises(UsageError) as caught:
            parse_body(kind, {**SOUND[kind], name: ASKS})
        assert (caught.value.param or "").split(".")[0] == name


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_not_supported_passes_with_each_value_that_the_document_allows(
    kind: type[GenerationBody],
) -> None:
    properties = body_schema(kind)["properties"]
    plain = parse_body(kind, SOUND[kind])
    for name in IN_BODY:
        if name not in kind.model_fields:
            for value in properties[name]["enum"]:
                assert parse_body(kind, {**SOUND[kind], name: value}) == plain


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_has_no_field_that_is_unknown(kind: type[GenerationBody]) -> None:
    assert set(body_schema(kind)["properties"]) == {*kind.model_fields, *IN_BODY}


@pytest.mark.parametrize("role", ["tool", "function"])
def test_roles_of_tools_are_refused_by_name(role: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": role, "content": "y"}]
    with pytest.raises(UsageError) as caught:
        parse_body(ChatBody, {"messages": messages})
    assert caught.value.param == "messages.1.role"


def test_labels_change_nothing_but_are_checked() -> None:
    for name in ("user", "safety_identifier", "prompt_cache_key"):
        body = parse_body(CompletionBody, {"prompt": "x", name: "me"})
        assert body.decoding() == parse_body(CompletionBody, {"prompt": "x"}).decoding()
        with pytest.raises(UsageError) as caught:
            parse_body(CompletionBody, {"prompt": "x", name: 5})
        assert caught.value.param == name


def test_the_readme_names_every_field() -> None:
    text = (Path(raydiff.serve.__file__).parent / "README.md").read_text()
    for kind in KINDS:
        for name in body_schema(kind)["properties"]:
            assert f"`{name}`" in text, name
