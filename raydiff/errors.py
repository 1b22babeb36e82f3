"""Every error raydiff raises on purpose.

RaydiffError
├── UsageError                a value the caller chose cannot work        (HTTP 400, exit status 2)
│   ├── DecodingError         an impossible decoding parameter
│   ├── PromptTooLong         the prompt exceeds the model's context
│   ├── InputError            an input path, file or column cannot be used
│   └── RunConflict           the output directory holds another run
├── ModelError                a checkpoint cannot be loaded or is unknown (HTTP 404, exit status 3)
├── ClusterError              no usable Ray cluster or Serve application  (HTTP 503, exit status 3)
│   └── ReplicaDied           a replica went away while it served a call
├── TooManyFailures           a corpus run fails more documents than allowed (exit status 3)
├── StorageError              an object store refused or is out of reach  (exit status 3)
├── Overloaded                queues are full, try again later            (HTTP 429)
├── DeadlineExceeded          the caller's deadline passed                (HTTP 408)
├── RequestCancelled          the caller went away
├── DocumentTooLong           a document does not fit a prompt            (a row of the errors)
├── TokenizerError            the tokenizer broke on a text               (a row of the errors)
└── EngineError               the engine failed while serving a request   (HTTP 500)
    └── OutOfMemory           one forward does not fit even alone

Messages are full sentences that give the name, what was expected, what was
got and, where there is one, the remedy. `invalid()` composes them.
"""

from __future__ import annotations


class RaydiffError(Exception):
    """Base of the tree; catching it catches whatever raydiff raises on purpose."""


class UsageError(RaydiffError):
    """A value chosen by the caller cannot work. `param` names it where it has a name."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def __reduce__(self) -> tuple[type[UsageError], tuple[str, str | None]]:
        return type(self), (str(self), self.param)


class DecodingError(UsageError):
    """A decoding parameter is impossible, alone or for the model."""


class PromptTooLong(UsageError):
    """The prompt has more tokens than the model's context holds."""


class InputError(UsageError):
    """An input path, file or column cannot be used."""


class RunConflict(UsageError):
    """The output directory belongs to a run with another fingerprint."""


class ModelError(RaydiffError):
    """A checkpoint is missing, malformed or of an unknown family."""


class ClusterError(RaydiffError):
    """There is no usable Ray cluster or Serve application."""


class StorageError(RaydiffError):
    """An object store refused a request, or was out of reach for longer than patience lasts.

    A file that is not there is a `FileNotFoundError` in every kind of store.
    """


class ReplicaDied(ClusterError):
    """A replica died or went away while it served a call; one of the requests may be why."""


class TooManyFailures(RaydiffError):
    """A corpus run fails a larger share of its documents than it may."""


class Overloaded(RaydiffError):
    """Bounded queues are full. `retry_after_s` estimates when it is worth trying again."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type[Overloaded], tuple[str, float]]:
        return type(self), (str(self), self.retry_after_s)


class DeadlineExceeded(RaydiffError):
    """The deadline passed before the request was done; its slot is freed."""


class RequestCancelled(RaydiffError):
    """The caller cancelled the request or went away."""


class DocumentTooLong(RaydiffError):
    """A document does not fit a prompt, and may not or cannot be cut."""


class TokenizerError(RaydiffError):
    """The tokenizer broke on a text."""


class EngineError(RaydiffError):
    """The engine failed while it served a request."""


class OutOfMemory(EngineError):
    """A single row's forward does not fit in memory."""


def invalid(name: str, *, expected: str, got: object, remedy: str = "") -> str:
    """Compose an error sentence from a name, what was expected, what was got and a remedy."""
    sentence = f"{name}: expected {expected}, got {got!r}."
    return f"{sentence} {remedy}" if remedy else sentence
