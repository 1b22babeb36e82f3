"""Redaction: what every text goes through before it is written anywhere."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from ipaddress import ip_address

from raydiff.errors import UsageError, invalid

Redaction = Callable[[str], str]

BUILT_IN = "addresses"
NONE = "none"

_EMAIL = re.compile(r"[\w.+%'-]+@[\w-]+(?:\.[\w-]+)+")
_IP = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)"
    r"|(?<![\w.:])[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f.]*(?![\w:])"
)
_PHONE = re.compile(r"(?<![\w./-])(?:\+|\(|\d)[\d ().\u00a0\u2010-\u2015/-]{5,}\d(?![\w-])")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}")
_LEAST_PHONE_DIGITS = 7


def redact_addresses(text: str) -> str:
    """Put [email], [ip] and [phone] where such addresses and numbers stand.

    A phone number has at least 7 digits, and begins with + or ( or has separators; several of
    them in a row go together, and so does what looks alike: rather too much than too little.
    """
    text = _EMAIL.sub("[email]", text)
    text = _IP.sub(lambda match: "[ip]" if _is_ip(match[0]) else match[0], text)
    return _PHONE.sub(lambda match: "[phone]" if _is_phone(match[0]) else match[0], text)


def _is_ip(found: str) -> bool:
    try:
        ip_address(found.rstrip("."))
    except ValueError:
        return False
    # a::b is more often a name in a program than an address
    return any(letter.isdigit() for letter in found)


def _is_phone(found: str) -> bool:
    digits = sum(letter.isdigit() for letter in found)
    marked = digits < len(found)
    return digits >= _LEAST_PHONE_DIGITS and marked and not _DATE.fullmatch(found)


def load_redaction(name: str) -> Redaction:
    """The redaction that `--redact` names: addresses, none, or module:function.

    A module is also looked for in the working directory. What comes of a function of the user's
    is checked: where it fails, nothing may be written, and its error's text is not repeated,
    because it may hold the document.

    Raises:
        UsageError: there is no such function.
    """
    if name == BUILT_IN:
        return redact_addresses
    if name == NONE:
        return str
    return _checked(name, _imported(name))


def _imported(name: str) -> Callable[[str], object]:
    module, _, function = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        expected = f"{BUILT_IN}, {NONE} or module:function that can be imported"
        message = invalid("redact", expected=expected, got=name, remedy=f"{error}.")
        raise UsageError(message, "redact") from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise UsageError(invalid("redact", expected="a function", got=name), "redact")
    hook: Callable[[str], object] = found
    return hook


def _checked(name: str, hook: Callable[[str], object]) -> Redaction:
    def redact(text: str) -> str:
        try:
            redacted = hook(text)
        except Exception as error:
            raise _failed(name, f"raised {type(error).__name__}") from None
        if not isinstance(redacted, str):
            raise _failed(name, f"returned {type(redacted).__name__}, not str")
        return redacted

    return redact


def _failed(name: str, what: str) -> UsageError:
    return UsageError(f"redact: {name} {what}. Nothing was written.", "redact")
