"""Chats that exceed a context lose their oldest turns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.errors import PromptTooLong, UsageError
from raydiff.families import load_spec
from raydiff.families.presets import PRESETS
from raydiff.text import Tokenizer
from raydiff.text.template import ChatTemplate
from raydiff.text.turns import fit_chat
from tests.text.conftest import byte_pairs, spec_for

TEMPLATES = sorted(
    {load_spec(f"random:{name}").chat_template or "" for name in PRESETS},
    key=len,
)
STRICT = (
    "{% set ns = namespace(last='assistant') %}{% for m in messages %}"
    "{% if m.role != 'system' %}{% if m.role == ns.last %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.last = m.role %}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
)
"""Refuses chats whose roles do not alternate, or that begin with an answer, as many do."""


def tokenizer_of(template: str) -> Tokenizer:
    backend = byte_pairs()
    return Tokenizer(backend, spec_for(backend), ChatTemplate(template) if template else None)


def chat(turns: int, system: bool = True) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": "be kind"}] if system else []
    for i in range(turns):
        messages.append({"role": "user", "content": f"question {i} " + "x" * (i % 5)})
        messages.append({"role": "assistant", "content": f"answer {i}"})
    return [*messages, {"role": "user", "content": "last question"}]


@pytest.mark.parametrize("template", [*TEMPLATES, STRICT], ids=lambda t: f"template-{len(t)}")
@pytest.mark.parametrize("system", [True, False])
def test_as_few_of_the_oldest_turns_go_as_need_to(template: str, system: bool) -> None:
    """For every template of a family: what is left is the chat without them, as it would be
    rendered by itself, and one turn more would not fit."""
    tokenizer, messages = tokenizer_of(template), chat(9, system)
    first = 1 if system else 0
    whole = len(tokenizer.chat_prompt_ids(messages))
    least = len(tokenizer.chat_prompt_ids([*messages[:first], messages[-1]]))
    for limit in (least, (least + whole) // 2, whole - 1, whole):
        fitted = fit_chat(tokenizer, messages, limit)
        assert len(fitted.prompt_ids) <= limit
        assert fitted.dropped % 2 == 0
        kept = [*messages[:first], *messages[first + fitted.dropped :]]
        assert fitted.prompt_ids == tokenizer.chat_prompt_ids(kept)
        if fitted.dropped:
            more = [*messages[:first], *messages[first + fitted.dropped - 2 :]]
            assert len(tokenizer.chat_prompt_ids(more)) > limit
    assert fit_chat(tokenizer, messages, whole).dropped == 0


@pytest.mark.parametrize("template", [*TEMPLATES, STRICT], ids=lambda t: f"template-{len(t)}")
def test_a_system_prompt_and_a_last_message_that_do_not_fit_are_refused(template: str) -> None:
    tokenizer, messages = tokenizer_of(template), chat(3)
    least = len(tokenizer.chat_prompt_ids([messages[0], messages[-1]]))
    with pytest.raises(PromptTooLong, match=f"at most {least - 1} tokens, got {least}") as caught:
        fit_chat(tokenizer, messages, least - 1)
    assert caught.value.param == "messages"
    with pytest.raises(PromptTooLong):
        fit_chat(tokenizer, [messages[-1]], 2)


def test_messages_of_one_role_in_a_row_stay_together() -> None:
    tokenizer = tokenizer_of("")
    messages = [
        {"role": "assistant", "content": "greeting"},
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "answer"},
        {"role": "developer", "content": "rule"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "begun"},
    ]

    def left(limit: int) -> str:
        return tokenizer.decode(fit_chat(tokenizer, messages, limit).prompt_ids)

    lengths = {
        left(limit): None
        for limit in range(len(tokenizer.prompt_ids("rule\n\nthree\n\nbegun")), 200)
    }
    assert list(lengths) == [
        "rule\n\nthree\n\nbegun",
        "one\n\ntwo\n\nanswer\n\nrule\n\nthree\n\nbegun",
        "greeting\n\none\n\ntwo\n\nanswer\n\nrule\n\nthree\n\nbegun",
    ]


ROLES = ("system", "user", "assistant")


@settings(max_examples=60, deadline=None)
@given(roles=st.lists(st.sampled_from(ROLES), min_size=1, max_size=12), limit=st.integers(1, 60))
def test_system_messages_and_the_last_of_the_user_are_never_dropped(
    roles: list[str], limit: int
) -> None:
    tokenizer = tokenizer_of("")
    messages = [{"role": role, "content": f"{role}{i}"} for i, role in enumerate(roles)]
    try:
        fitted = fit_chat(tokenizer, messages, limit)
    except PromptTooLong:
        return
    text = tokenizer.decode(fitted.prompt_ids)
    kept = [m for m in messages if m["content"] in text.split("\n\n")]
    assert len(messages) - len(kept) == fitted.dropped
    assert [m for m in kept if m["role"] == "system"] == [
        m for m in messages if m["role"] == "system"
    ]
    users = [m for m in messages if m["role"] == "user"]
    assert users[-1:] == [m for m in kept if m["role"] == "user"][-1:]


def test_a_long_chat_is_tokenised_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, messages = tokenizer_of(TEMPLATES[-1]), chat(500)
    calls = 0
    original = Tokenizer.chat_prompt_ids

    def counted(self: Tokenizer, given: list[dict[str, str]]) -> tuple[int, ...]:
        nonlocal calls
        calls += 1
        return original(self, given)

    monkeypatch.setattr(Tokenizer, "chat_prompt_ids", counted)
    assert fit_chat(tokenizer, messages, 300).dropped > 900
    assert calls <= 11


def test_a_chat_without_messages_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one message"):
        fit_chat(tokenizer_of(""), [], 10)
