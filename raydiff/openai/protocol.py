"""The bodies of OpenAI's text endpoints, and what of them raydiff understands.

Unknown fields are refused by name. Fields that OpenAI knows and raydiff does not support pass
only with a value that asks for nothing (`raydiff.openai.unsupported`). `null` means absent. An
absent temperature is the model's own default, not OpenAI's 1.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema

from raydiff.errors import DecodingError, UsageError, invalid
from raydiff.openai.contents import CONTENT_SCHEMA, PROMPT_SCHEMA, Prompt, prompts_of, text_of
from raydiff.openai.reading import Body, usage_error, without_nulls
from raydiff.openai.unsupported import IN_BODY, IN_MESSAGE, without_neutral
from raydiff.request import Decoding

MAX_N = 128
"""Most answers to one prompt."""
MAX_LABEL = 512
"""Longest `user` and the like, in characters."""

_ALL_TOKENS = -1
"""How other servers spell a `top_k` that keeps all tokens."""

_LABEL = "A label of yours, up to 512 characters. It changes no answer."
_Label = Annotated[str | None, Field(max_length=MAX_LABEL, description=_LABEL)]


class StreamOptions(Body):
    """The `stream_options` object."""

    include_usage: bool = Field(False, description="A last chunk has the usage of all choices.")
    continuous_usage_stats: bool = Field(False, description="Every chunk has the usage so far.")
    include_obfuscation: bool = Field(False, description="Accepted; chunks are never padded.")


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

    model: str | None = Field(None, description="May be left out where one model is served.")
    n: int = Field(1, ge=1, le=MAX_N, description="Answers to each prompt.")
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: Annotated[Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array"}]})] = None
    stream: bool = Field(False, description="Answer in server-sent events, as text becomes final.")
    stream_options: StreamOptions | None = None
    service_tier: Literal["auto", "default", "flex"] = Field(
        "auto", description="flex: in the batch lane, behind all interactive requests."
    )
    user: _Label = None
    safety_identifier: _Label = None
    prompt_cache_key: _Label = None
    diffusing: bool = Field(
        False,
        description="With stream: every chunk has the whole canvas as it stands, undecided "
        "positions too, in place of new text; the chunk with finish_reason has the final text.",
    )
    diffusion: Annotated[dict[str, Any], PlainValidator(_diffusion_of)] = Field(
        {}, description="How to denoise."
    )
    """The settings of Decoding that have no field of their own above."""

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
            "stop": None if self.stop in ("", []) else self.stop,
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
    def top(self) -> int | None:
        """How many alternatives to give with each token's log-probability; `None`: no
        log-probabilities."""
        return None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk has the usage so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    def check(self) -> None:
        """Check the fields against each other.

        Raises:
            UsageError: they contradict each other; `param` names one.
        """
        if self.stream_options is not None and not self.stream:
            message = "stream_options: expected only together with stream=true."
            raise UsageError(message, "stream_options")
        if self.diffusing and not self.stream:
            raise UsageError("diffusing: expected only together with stream=true.", "diffusing")
        if self.diffusing and self.top is not None:
            message = "diffusing: not together with logprobs, which only final tokens have."
            raise UsageError(message, "diffusing")


DIFFUSION_FIELDS = tuple(
    f.name for f in fields(Decoding) if f.name not in GenerationBody.model_fields
)
"""Settings of Decoding that stand in the body's `diffusion` object."""


class CompletionBody(GenerationBody):
    """Body of `/v1/completions`."""

    prompt: Annotated[list[Prompt], PlainValidator(prompts_of), WithJsonSchema(PROMPT_SCHEMA)]
    """One entry per prompt."""
    echo: bool = Field(False, description="Begin each text with its prompt.")
    logprobs: int | None = Field(
        None, ge=0, le=5, description="Log-probabilities of the tokens, with so many alternatives."
    )

    @property
    def top(self) -> int | None:
        return self.logprobs

    def check(self) -> None:
        super().check()
        if self.echo and self.logprobs is not None:
            message = "echo: not together with logprobs; the prompt's tokens have none."
            raise UsageError(message, "echo")
        if self.echo and self.diffusing:
            raise UsageError("echo: not together with diffusing.", "echo")


class ChatMessage(Body):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, PlainValidator(text_of), WithJsonSchema(CONTENT_SCHEMA)]
    name: str | None = None


class ChatBody(GenerationBody):
    """Body of `/v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool = Field(False, description="Give the log-probabilities of the tokens.")
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="Alternatives with each; needs logprobs."
    )
    truncation: Literal["none", "oldest_turns"] = Field(
        "none",
        description="What becomes of a chat that exceeds the context: refused, or without its "
        "oldest turns. System messages and the last turn stay.",
    )

    @property
    def top(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            message = "top_logprobs: expected only together with logprobs=true."
            raise UsageError(message, "top_logprobs")

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


AnyBody = TypeVar("AnyBody", bound=Body)


def parse_body(kind: type[AnyBody], raw: object) -> AnyBody:
    """Check a decoded JSON value against a body.

    Raises:
        UsageError: it is no object, a field is unknown, unsupported, of the wrong type or
            contradicts another; `param` is the field's path.
    """
    if not isinstance(raw, dict):
        raise UsageError(invalid("body", expected="a JSON object", got=type(raw).__name__))
    body = without_nulls(raw)
    if issubclass(kind, GenerationBody):
        body = without_neutral(body, IN_BODY, "", kind.model_fields)
    if isinstance(body.get("messages"), list):
        body["messages"] = [
            without_neutral(m, IN_MESSAGE, f"messages.{i}.") if isinstance(m, dict) else m
            for i, m in enumerate(body["messages"])
        ]
    try:
        parsed = kind.model_validate(body)
    except ValidationError as error:
        raise usage_error(error) from None
    parsed.check()
    return parsed


def body_path(error: DecodingError) -> DecodingError:
    """The same error with `param` as the path of the field in a request body."""
    if error.param not in DIFFUSION_FIELDS:
        return error
    return DecodingError(str(error), param=f"diffusion.{error.param}")
