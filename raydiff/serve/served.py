"""What stands behind the gateway: models, each with its replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raydiff.errors import ModelError, UsageError, invalid
from raydiff.openai.prompts import PromptReader
from raydiff.request import Completion, Event, GenerationRequest
from raydiff.serve.access import Caller


class Replicas(Protocol):
    """What the gateway needs of a model's replicas; `Client` is the real one."""

    async def generate(
        self, requests: Sequence[GenerationRequest], *, timeout_s: float
    ) -> list[Completion]: ...

    def stream(self, request: GenerationRequest, *, timeout_s: float) -> AsyncIterator[Event]: ...

    async def describe(self, *, timeout_s: float) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """One model behind the gateway."""

    name: str
    reader: PromptReader
    replicas: Replicas
    min_replicas: int
    created: int
    batch_only: bool = False
    """Whether all its requests are batch work, whoever asks."""
    fingerprint: str = ""
    """Changes whenever the same request may get another text: OpenAI's `system_fingerprint`."""

    def body(self) -> dict[str, Any]:
        """OpenAI's model object, with the limits a client must know."""
        spec = self.reader.spec
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "raydiff",
            "family": spec.family,
            "context_length": spec.context_length,
            "max_prompt_tokens": spec.max_prompt_tokens,
            "max_new_tokens": spec.max_new_tokens,
            "block_length": spec.block_length,
            "policies": list(spec.policies()),
            "chat_template": self.reader.tokenizer.has_chat_template,
            "simulated": spec.family == "simulated",
        }


class ServedModels:
    """The models of a gateway, as each caller sees them."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = dict(models)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def of(self, caller: Caller) -> list[ServedModel]:
        """The models that the caller may use."""
        return [model for model in self if caller.may_use(model.name)]

    def named(self, name: str | None, caller: Caller) -> ServedModel:
        """The model of that name, or the only one where none is named.

        Raises:
            ModelError: there is none that the caller may use.
            UsageError: a name is needed.
        """
        allowed = {model.name: model for model in self.of(caller)}
        if name is None and len(allowed) == 1:
            return next(iter(allowed.values()))
        names = ", ".join(sorted(allowed))
        if name is None:
            message = f"model: required, but missing. It may be one of {names or 'none'}."
            raise UsageError(message, "model")
        if name not in allowed:
            expected = f"one of {names}" if names else "a model that this key may use"
            raise ModelError(invalid("model", expected=expected, got=name))
        return allowed[name]
