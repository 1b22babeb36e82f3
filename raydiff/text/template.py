"""Chat templates: a checkpoint's own Jinja program turns messages into a prompt, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raydiff.errors import ModelError, UsageError, invalid
from raydiff.families import load_spec, model_path, without_files

if TYPE_CHECKING:
    from jinja2 import Template

_TOKEN_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_DEFAULT = "default"

Messages = Sequence[Mapping[str, str]]


class ChatTemplate:
    """A template in the dialect of Hugging Face's tokenizers, and the tokens it may name."""

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        """`tokens` holds the texts of `bos_token`, `eos_token` and the like.

        Raises:
            ModelError: the template is no valid Jinja.
        """
        self.source = source
        self._tokens = dict(tokens or {})
        self._template = _compiled(source)

    def render(self, messages: Messages) -> str:
        """The prompt of a chat, up to where the answer begins.

        Raises:
            UsageError: the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=[_understood(m) for m in messages],
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._tokens,
            )
        except UsageError:
            raise
        except Exception as error:  # a template is a program: it fails in whatever way it likes
            reason = f"{type(error).__name__}: {error}"
            message = f"messages: the chat template cannot render them: {reason}."
            raise UsageError(message, "messages") from error


def load_chat_template(path_or_name: str | Path) -> ChatTemplate | None:
    """The template of a model: its checkpoint's own, else its family's, if there is one.

    Raises:
        ModelError: the model is unknown, or the template is malformed.
    """
    fallback = load_spec(path_or_name).chat_template
    if without_files(path_or_name):
        return None if fallback is None else ChatTemplate(fallback)
    return read_chat_template(model_path(path_or_name), fallback)


def read_chat_template(path: Path, fallback: str | None = None) -> ChatTemplate | None:
    """The template of a checkpoint directory, else one made of `fallback`, if there is one.

    Raises:
        ModelError: it is malformed.
    """
    config = _read(path / "tokenizer_config.json")
    source = _source(path, config)
    source = fallback if source is None else source
    if source is None:
        return None
    try:
        return ChatTemplate(source, special_texts(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def special_texts(path: Path) -> dict[str, str]:
    """Texts of `bos_token` and the like, by those names."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        given = _read(path / name)
        found.update({key: given[key] for key in _TOKEN_NAMES if given.get(key) is not None})
    texts = {
        key: value.get("content") if isinstance(value, dict) else value
        for key, value in found.items()
    }
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _source(path: Path, config: Mapping[str, Any]) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{file}: expected a readable template: {error}.") from error
    template = config.get("chat_template")
    if template is None:
        template = _read(path / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        template = _named(template, path)
    if template is None or isinstance(template, str):
        return template
    expected = "chat_template to be a text or a list of named texts"
    raise ModelError(invalid(str(path), expected=expected, got=template))


def _named(templates: Sequence[Any], path: Path) -> Any:
    try:
        by_name = {entry["name"]: entry["template"] for entry in templates}
    except (KeyError, TypeError) as error:
        expected = "chat templates with name and template"
        raise ModelError(invalid(str(path), expected=expected, got=templates)) from error
    if by_name and _DEFAULT not in by_name:
        expected = f"a chat template named {_DEFAULT!r}"
        raise ModelError(invalid(str(path), expected=expected, got=sorted(by_name)))
    return by_name.get(_DEFAULT)


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: expected a JSON object: {error}.") from error
    if not isinstance(value, dict):
        raise ModelError(invalid(str(file), expected="a JSON object", got=type(value).__name__))
    return value


def _compiled(source: str) -> Template:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateSyntaxError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what a trainer learns from; a prompt takes it as it is."""

        tags = {"generation"}  # noqa: RUF012 - Jinja's own attribute

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        message = f"the chat template is no valid Jinja: {error.message} (line {error.lineno})."
        raise ModelError(message) from error


def _understood(message: Mapping[str, str]) -> dict[str, str]:
    """Templates know no developer, OpenAI's newer name of the system."""
    role = message.get("role", "user")
    return {**message, "role": "system" if role == "developer" else role}


def _refuse(message: str) -> None:
    raise UsageError(f"messages: the chat template refused them: {message}.", "messages")


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own, it escapes nothing for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
