"""The bodies of OpenAI's text endpoints, and what of them raydiff understands.

Unknown fields are refused by name. Fields that OpenAI knows and raydiff does not support pass
only with a value that asks for nothing. `null` means absent. An absent temperature is the
model's own default, not OpenAI's 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from raydiff.errors import DecodingError, UsageError, invalid
from raydiff.openai.contents import Prompt, prompts_of, text_of
from raydiff.request import Decoding

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "store": (False,),
    "metadata": ({},),
    "service_tier": ("auto", "default"),
}
"""Fields of OpenAI's API and of load generators that raydiff does not support, with the values
that ask for nothing."""

_NEUTRAL_IN_MESSAGE: dict[str, tuple[Any, ...]] = {
    "tool_calls": ([],),
    "annotations": ([],),
    "refusal": (),
    "audio": (),
    "function_call": (),
}

_ALL_TOKENS = -1
"""How other servers spell a `top_k` that keeps all tokens."""


class Body(BaseModel):
    """Base of request bodies: no coercion, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StreamOptions(Body):
    """The `stream_options` object."""

    include_usage: bool = False
    include_obfuscation: bool = False


def _diffusion_of(value: Any) -> dict[str, Any]:
    """The settings in a `diffusion` object; Decoding checks their values.

    Raises:
        ValueError: it is no object.
        UsageError: a name is unknown; `param` is its path.
    """
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    unknown = next((name for name in value if name not in DIFFUSION_FIELDS), None)
    if unknown is not None:
        path = f"diffusion.{unknown}"
        raise UsageError(f"{path}: unknown field. Known are {', '.join(DIFFUSION_FIELDS)}.", path)
    return value


class GenerationBody(Body):
    """What both endpoints share."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: Any = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    diffusion: Annotated[dict[str, Any], PlainValidator(_diffusion_of)] = {}
    """How to denoise: the settings of Decoding that have no field of their own above."""

    def decoding(self) -> Decoding:
        """The decoding parameters that the body names.

        Raises:
            DecodingError: one of them is impossible; `param` is its path in the body.
        """
        values: dict[str, Any] = {
            "max_tokens": self.token_limit(),
            "min_tokens": self.min_tokens,
            "ignore_eos": self.ignore_eos,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": None if self.top_k == _ALL_TOKENS else self.top_k,
            "seed": self.seed,
            "stop": self.stop or None,
            **self.diffusion,
        }
        try:
            return Decoding.from_mapping(values)
        except DecodingError as error:
            raise body_path(error) from None

    def token_limit(self) -> int | None:
        """The most tokens to generate, by whichever name the body gives it."""
        return self.max_tokens

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


DIFFUSION_FIELDS = tuple(
    f.name for f in fields(Decoding) if f.name not in GenerationBody.model_fields
)
"""Settings of Decoding that stand in the body's `diffusion` object."""


class CompletionBody(GenerationBody):
    """Body of `/v1/completions`."""

    prompt: Annotated[list[Prompt], PlainValidator(prompts_of)]
    """One entry per row to generate."""


class ChatMessage(Body):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, PlainValidator(text_of)]
    name: str | None = None


class ChatBody(GenerationBody):
    """Body of `/v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None

    def token_limit(self) -> int | None:
        if self.max_completion_tokens is None:
            return self.max_tokens
        if self.max_tokens is not None and self.max_tokens != self.max_completion_tokens:
            expected = f"the same as max_tokens ({self.max_tokens})"
            got = self.max_completion_tokens
            message = invalid(
                "max_completion_tokens", expected=expected, got=got, remedy="Give only one."
            )
            raise DecodingError(message, param="max_completion_tokens")
        return self.max_completion_tokens

    def texts(self) -> list[dict[str, str]]:
        """The messages as plain role and content."""
        return [{"role": m.role, "content": m.content} for m in self.messages]


AnyBody = TypeVar("AnyBody", bound=GenerationBody)


def parse_body(kind: type[AnyBody], raw: object) -> AnyBody:
    """Check a decoded JSON value against a body.

    Raises:
        UsageError: it is no object, a field is unknown, unsupported or of the wrong type;
            `param` is the field's path.
    """
    if not isinstance(raw, dict):
        raise UsageError(invalid("body", expected="a JSON object", got=type(raw).__name__))
    body = _without_nulls(raw)
    body = _without_neutral(body, _NEUTRAL, "", kind.model_fields)
    if isinstance(body.get("messages"), list):
        body["messages"] = [
            _without_neutral(m, _NEUTRAL_IN_MESSAGE, f"messages.{i}.") if isinstance(m, dict) else m
            for i, m in enumerate(body["messages"])
        ]
    try:
        parsed = kind.model_validate(body)
    except ValidationError as error:
        raise _usage_error(error) from None
    if parsed.stream_options is not None and not parsed.stream:
        message = "stream_options: expected only together with stream=true."
        raise UsageError(message, "stream_options")
    return parsed


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(v) for name, v in value.items() if v is not None}
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return [_without_nulls(v) for v in value]
    return value


def _without_neutral(
    body: Mapping[str, Any],
    neutral: Mapping[str, tuple[Any, ...]],
    prefix: str,
    known: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    kept = {}
    for name, value in body.items():
        if name not in neutral or name in (known or ()):
            kept[name] = value
        elif not any(_same(value, allowed) for allowed in neutral[name]):
            remedy = f"Leave it out{_allowed(neutral[name])}."
            message = f"{prefix}{name}: not supported with this value. {remedy}"
            raise UsageError(message, f"{prefix}{name}")
    return kept


def _same(value: Any, allowed: Any) -> bool:
    is_bool = isinstance(value, bool), isinstance(allowed, bool)
    return is_bool[0] == is_bool[1] and bool(value == allowed)


def _allowed(values: Sequence[Any]) -> str:
    return f" or give {' or '.join(repr(v) for v in values)}" if values else ""


def _usage_error(error: ValidationError) -> UsageError:
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UsageError(f"{param}: unknown field.", param)
    if first["type"] == "missing":
        return UsageError(f"{param}: required, but missing.", param)
    message = first["msg"].removeprefix("Value error, ")
    return UsageError(f"{param}: {message[:1].lower()}{message[1:]}.".replace("..", "."), param)


def body_path(error: DecodingError) -> DecodingError:
    """The same error with `param` as the path of the field in a request body."""
    if error.param not in DIFFUSION_FIELDS:
        return error
    return DecodingError(str(error), param=f"diffusion.{error.param}")
