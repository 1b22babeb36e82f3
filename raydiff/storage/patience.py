"""Repeats requests to a store until they succeed, and says clearly when they cannot."""

from __future__ import annotations

import errno
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from raydiff.errors import StorageError

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_LASTING_TRIES = 3
_REPORT_EVERY_S = 10.0
_TRANSIENT_CODES = frozenset(
    {
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)
_NOT_IMPLEMENTED = 501
_CREDENTIAL_CODES = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
)
_REGION_CODES = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
_CREDENTIALS_REMEDY = (
    "Give valid credentials by environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), by "
    "profile (AWS_PROFILE) or by the machine's role."
)


@dataclass(frozen=True)
class Request:
    """What is asked of which object, for messages."""

    operation: str
    """As S3 calls it, e.g. `PutObject`."""
    uri: str
    endpoint: str


def pauses(patience_s: float) -> Iterator[float]:
    """Seconds to wait before each new try, growing and random, until patience is at an end.

    The total is at least `patience_s`, measured by the clock, so that the tries themselves count.
    """
    end = time.monotonic() + patience_s
    bound = _FIRST_PAUSE_S
    while (left := end - time.monotonic()) > 0:
        yield min(bound * random.uniform(0.5, 1.0), left)
        bound = min(2 * bound, _LONGEST_PAUSE_S)


def patiently(call: Callable[[], _T], request: Request, patience_s: float) -> _T:
    """The result of `call`, which is repeated while the store is throttling, failing or away.

    Raises:
        FileNotFoundError: there is no such object.
        ClientError: a condition of the request does not hold (HTTP 412).
        StorageError: the store refused, or patience is at an end.
    """
    waits = pauses(patience_s)
    tries = 0
    while True:
        tries += 1
        try:
            return call()
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            if is_unmet_condition(error):
                raise
            if not is_transient(error):
                raise explain(error, request) from error
            pause = next(waits, None)
            if pause is None:
                raise _exhausted(error, request, tries, patience_s) from error
            _reports.add(error, request, tries)
        time.sleep(pause)


class _Reports:
    """Logs failures that last, now and then: in an outage every thread has them."""

    def __init__(self) -> None:
        self._last_s = -_REPORT_EVERY_S

    def add(self, error: Exception, request: Request, tries: int) -> None:
        now = time.monotonic()
        if tries >= _LASTING_TRIES and now - self._last_s >= _REPORT_EVERY_S:
            self._last_s = now
            _log.warning("%s Trying again.", _failed(error, request, tries))


_reports = _Reports()


def _failed(error: Exception, request: Request, tries: int) -> str:
    return (
        f"{request.uri}: {request.operation} at {request.endpoint} failed {tries} times, "
        f"lastly with {describe(error)}."
    )


def _exhausted(error: Exception, request: Request, tries: int, patience_s: float) -> StorageError:
    return StorageError(
        f"{_failed(error, request, tries)} Patience ended after {patience_s:.0f} s. Check that "
        "the endpoint is right and the store is well; then run the same command again to continue."
    )


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ClientError):
        status = _status(error)
        if status in (408, 429) or (status >= 500 and status != _NOT_IMPLEMENTED):
            return True
        return _code(error) in _TRANSIENT_CODES
    if isinstance(error, SSLError):
        return False
    return isinstance(
        error,
        HTTPClientError | IncompleteReadError | ResponseParserError | CredentialRetrievalError,
    )


def is_unmet_condition(error: Exception) -> bool:
    """Whether the store refused a write because the object is not as the condition says."""
    return isinstance(error, ClientError) and _status(error) == 412


def explain(error: Exception, request: Request) -> Exception:
    """A refusal in words: what was expected, what came, what to do."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return _refusal(request, "credentials", describe(error), _NO_CREDENTIALS_REMEDY)
    if not isinstance(error, ClientError):
        return _refusal(request, "an answer", describe(error), "Check endpoint and network.")
    code = _code(error)
    if code == "NoSuchBucket":
        remedy = "Correct the address or the endpoint, or create the bucket."
        return _refusal(request, "a bucket that exists", describe(error), remedy)
    if _status(error) == 404:
        return FileNotFoundError(errno.ENOENT, "There is no such object", request.uri)
    if code in _CREDENTIAL_CODES:
        return _refusal(
            request, "credentials the store knows", describe(error), _CREDENTIALS_REMEDY
        )
    if code in _REGION_CODES or _status(error) == 301:
        return _refusal(
            request, "the bucket's region", describe(error), "Name its region with --region."
        )
    if _status(error) in (401, 403):
        remedy = "Allow this operation to the identity whose credentials are in use."
        return _refusal(request, "permission", describe(error), remedy)
    return _refusal(request, "success", describe(error), "Check that the store supports it.")


_NO_CREDENTIALS_REMEDY = f"{_CREDENTIALS_REMEDY} Public data is read with --anonymous-input."


def _refusal(request: Request, expected: str, got: str, remedy: str) -> StorageError:
    return StorageError(
        f"{request.uri}: {request.operation} at {request.endpoint} expected {expected}, got "
        f"{got}. {remedy}"
    )


def describe(error: Exception) -> str:
    """One phrase of an error; nothing that was sent is in it."""
    if isinstance(error, ClientError):
        details: dict[str, Any] = error.response.get("Error", {})
        message = str(details.get("Message", "")).strip().rstrip(".")
        return f"HTTP {_status(error)} {_code(error)}" + (f" ({message})" if message else "")
    return f"{type(error).__name__}: {str(error).strip().rstrip('.')}"


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
