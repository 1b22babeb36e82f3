"""What a batch is: how it was asked for, and what has happened to it since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from raydiff.config import Endpoint

WINDOW_S = 24 * 3600
"""OpenAI's only completion window, "24h"."""

Ending = Literal["completed", "failed", "expired", "cancelled"]
Status = Literal["validating", "in_progress", "finalizing", "cancelling"] | Ending


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """A batch as it was asked for; never changes."""

    id: str
    key_id: str
    """Whose it is."""
    endpoint: Endpoint
    input_file_id: str
    created_at: int
    """Unix time in seconds."""
    app_name: str
    """The Serve application that is to answer."""
    models: Mapping[str, str]
    """Checkpoints of the models that the key may use, by served name."""
    fingerprints: Mapping[str, str]
    """What their answers carry as `system_fingerprint`."""
    metadata: Mapping[str, str] | None = None

    @property
    def expires_at(self) -> int:
        """Unix time in seconds."""
        return self.created_at + WINDOW_S


@dataclass(frozen=True, kw_only=True)
class LineError:
    """What is wrong with a batch's input, and in which line, from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, kw_only=True)
class Validated:
    """The input was found sound."""

    at: int
    total: int
    """Lines that are requests."""
    model: str
    """The served name that all of them ask for."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a batch ended."""

    at: int
    status: Ending
    total: int = 0
    completed: int = 0
    failed: int = 0
    """Lines of the error file, those that were never executed among them."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: Sequence[LineError] = ()
    """Of the input, where that is why the batch failed."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `asdict`."""
        errors = tuple(LineError(**error) for error in fields["errors"])
        return cls(**{**fields, "errors": errors})


@dataclass(frozen=True, kw_only=True)
class BatchState:
    """A batch as it stands."""

    record: BatchRecord
    validated: Validated | None = None
    cancelling_at: int | None = None
    finalizing_at: int | None = None
    ended: Ended | None = None
    completed: int = 0
    """Lines answered so far."""
    failed: int = 0

    @property
    def status(self) -> Status:
        """In OpenAI's words."""
        if self.ended is not None:
            return self.ended.status
        if self.cancelling_at is not None:
            return "cancelling"
        if self.finalizing_at is not None:
            return "finalizing"
        return "validating" if self.validated is None else "in_progress"

    def body(self) -> dict[str, Any]:
        """OpenAI's batch object."""
        record, ended = self.record, self.ended
        errors = [asdict(error) for error in ended.errors] if ended else []
        return {
            "id": record.id,
            "object": "batch",
            "endpoint": record.endpoint,
            "model": self.validated.model if self.validated else None,
            "errors": {"object": "list", "data": errors} if errors else None,
            "input_file_id": record.input_file_id,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": ended.output_file_id if ended else None,
            "error_file_id": ended.error_file_id if ended else None,
            **self._times(),
            "request_counts": self._counts(),
            "usage": self._usage(),
            "metadata": dict(record.metadata) if record.metadata is not None else None,
        }

    def _times(self) -> dict[str, int | None]:
        ended = self.ended
        ends = dict.fromkeys(("completed", "failed", "expired", "cancelled"))
        times: dict[str, int | None] = {f"{name}_at": None for name in ends}
        if ended is not None:
            times[f"{ended.status}_at"] = ended.at
        return {
            "created_at": self.record.created_at,
            "in_progress_at": self.validated.at if self.validated else None,
            "expires_at": self.record.expires_at,
            "finalizing_at": self.finalizing_at,
            "cancelling_at": self.cancelling_at,
            **times,
        }

    def _counts(self) -> dict[str, int]:
        if self.ended is not None:
            ended = self.ended
            counts = (ended.total, ended.completed, ended.failed)
        else:
            total = self.validated.total if self.validated else 0
            counts = (total, self.completed, self.failed)
        return dict(zip(("total", "completed", "failed"), counts, strict=True))

    def _usage(self) -> dict[str, Any] | None:
        if self.ended is None or self.ended.status == "failed":
            return None
        prompt, output = self.ended.prompt_tokens, self.ended.output_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + output,
        }
