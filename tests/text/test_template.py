"""Chat templates of checkpoints: where they are read from, and what they may do."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from raydiff.errors import ModelError, UsageError
from raydiff.text.template import ChatTemplate, read_chat_template

USER = [{"role": "user", "content": "a"}]


def _write(path: Path, **files: Any) -> Path:
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (path / name.replace("__", ".")).write_text(text)
    return path


def _rendered(path: Path, fallback: str | None = None) -> str:
    template = read_chat_template(path, fallback)
    assert template is not None
    return template.render(USER)


def test_a_file_of_its_own_comes_before_the_config_and_the_familys_template(
    tmp_path: Path,
) -> None:
    assert read_chat_template(tmp_path) is None
    assert _rendered(tmp_path, "family") == "family"
    _write(tmp_path, tokenizer_config__json={"chat_template": "config"})
    assert _rendered(tmp_path, "family") == "config"
    _write(tmp_path, chat_template__jinja="file")
    assert _rendered(tmp_path, "family") == "file"


def test_a_processors_template_is_read_too(tmp_path: Path) -> None:
    _write(tmp_path, chat_template__json={"chat_template": "processor"})
    assert _rendered(tmp_path) == "processor"


def test_of_several_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    _write(tmp_path, tokenizer_config__json={"chat_template": named})
    assert _rendered(tmp_path) == "d"


@pytest.mark.parametrize(
    "template", [5, {"a": "b"}, ["a"], [{"name": "tool_use", "template": "t"}], "{% if %}"]
)
def test_a_malformed_template_is_a_model_error(tmp_path: Path, template: Any) -> None:
    _write(tmp_path, tokenizer_config__json={"chat_template": template})
    with pytest.raises(ModelError, match=r"chat.template"):
        read_chat_template(tmp_path)


def test_special_tokens_have_their_names(tmp_path: Path) -> None:
    _write(
        tmp_path,
        special_tokens_map__json={"bos_token": "<old>", "eos_token": {"content": "<e>"}},
        tokenizer_config__json={"bos_token": "<b>", "pad_token": None},
    )
    _write(tmp_path, chat_template__jinja="{{ bos_token }}|{{ eos_token }}|{{ pad_token }}")
    assert _rendered(tmp_path) == "<b>|<e>|"


CHAT = """\
{%- if messages[0].role == 'system' -%}
    {{ bos_token + messages[0].content | trim }}
{% endif %}
{% for message in messages %}
    {% if loop.index > 9 %}{% break %}{% endif %}
    {% if message.role == 'assistant' %}
{% generation %}<a>{{ message.content }}{% endgeneration %}
    {% else %}
{{ '<|' + message['role'] + '|>' + message['content'] | tojson }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt and tools is none %}<a>{% endif %}
{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}
"""


def test_a_template_renders_as_transformers_renders_it() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [
        {"role": "system", "content": " be <short> & kind "},
        {"role": "user", "content": "é 'x'"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    expected, _ = render_jinja_template(
        [messages], chat_template=CHAT, add_generation_prompt=True, bos_token="<b>"
    )
    assert ChatTemplate(CHAT, {"bos_token": "<b>"}).render(messages) == expected[0]


def test_a_template_may_name_the_day() -> None:
    rendered = ChatTemplate("{{ strftime_now('%Y') }}").render(USER)
    assert rendered in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_a_developer_speaks_as_the_system() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role }} {% endfor %}")
    assert template.render([{"role": "developer", "content": "a"}, *USER]) == "system user "


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[7].content.x }}", "cannot render"),
        ("{{ 1 + 'a' }}", "TypeError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "cannot render"),
        ("{% for i in range(999999999) %}{% endfor %}", "OverflowError"),
    ],
)
def test_a_template_that_refuses_or_misbehaves_is_a_usage_error(source: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        ChatTemplate(source).render(USER)
    assert caught.value.param == "messages"


def test_a_template_that_is_no_text_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"chat_template\.jinja: expected a readable template"):
        read_chat_template(tmp_path)
