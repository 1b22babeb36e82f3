"""What is taken out of texts before they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.bench.evaluation.redaction import load_redaction, redact_addresses
from raydiff.errors import UsageError


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Write to jane.doe+x@mail.example.org.", "Write to [email]."),
        ("Call +49 (30) 1234-5678 now", "Call [phone] now"),
        ("Call (555) 123-4567.", "Call [phone]."),
        ("Call 030 12345678, please", "Call [phone], please"),
        ("030 12345678 030 87654321 or so", "[phone] or so"),
        ("555-123-4567,555-123-9999", "[phone],[phone]"),
        ("It listens on 192.168.0.17:80.", "It listens on [ip]:80."),
        ("At 2001:db8::ff00:42:8329, too", "At [ip], too"),
        ("or ::1 alone", "or [ip] alone"),
    ],
)
def test_addresses_are_taken_out(text: str, redacted: str) -> None:
    assert redact_addresses(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "Released on 2024-05-17 and 17.05.2024.",
        "Version 1.2.3 of libfoo2 at 12:30:45",
        "The class std::vector and a::b",
        "It has 10000000 rows, 1,234,567 of them new",
        "300.1.1.1 is no address",
        "See RFC 2616, chapters 10-12",
        "@decorator and a@b",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    assert redact_addresses(text) == text


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "def shout(text): return text.upper()\n"
        "def broken(text): raise ValueError(text)\n"
        "def nothing(text): return None\n"
    )
    (tmp_path / "my_hooks.py").write_text(source)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("hooks")
def test_a_function_of_the_users_own() -> None:
    assert load_redaction("my_hooks:shout")("secret") == "SECRET"
    assert load_redaction("none")("a@b.org") == "a@b.org"
    assert load_redaction("addresses")("a@b.org") == "[email]"


@pytest.mark.usefixtures("hooks")
@pytest.mark.parametrize(
    ("name", "said"),
    [("broken", "raised ValueError"), ("nothing", "returned NoneType, not str")],
)
def test_a_failing_function_is_an_error_that_does_not_repeat_the_text(name: str, said: str) -> None:
    redact = load_redaction(f"my_hooks:{name}")
    with pytest.raises(UsageError, match=said) as caught:
        redact("secret")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.usefixtures("hooks")
@pytest.mark.parametrize(
    "name", ["my_hooks:absent", "absent:f", "my_hooks", "", "my_hooks:__doc__"]
)
def test_what_cannot_be_loaded_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match="redact: expected"):
        load_redaction(name)
