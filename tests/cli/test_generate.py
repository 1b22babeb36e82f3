"""`raydiff generate` prints the text and nothing else on standard output."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from raydiff.cli import main


@pytest.fixture
def common(tiny_checkpoint: Path) -> list[str]:
    return ["--model", str(tiny_checkpoint), "--dtype", "fp32", "--threads", "1"]


def test_text_from_standard_input_is_the_same_as_from_the_command_line(
    common: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["generate", "tools for the web", *common]) == 0
    direct = capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("tools for the web"))
    assert main(["generate", "-", *common]) == 0
    assert capsys.readouterr() == direct
    assert direct.out.strip()
    assert direct.err == ""


def test_json_is_one_object_with_what_it_cost(
    common: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tools", "--json", "--ignore-eos", "--max-tokens", "40", "--steps", "8"]
    assert main(["generate", *arguments, *common]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["finish_reason"] == "length"
    assert record["completion_tokens"] == 40
    assert record["forwards"] == 16  # two blocks
    assert record["tokens_per_forward"] == 2.5


def test_watching_shows_every_step_on_stderr_and_the_text_on_stdout(
    common: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tools", "--watch", "--ignore-eos", "--max-tokens", "40", "--steps", "4"]
    assert main(["generate", *arguments, *common]) == 0
    printed = capsys.readouterr()
    frames = printed.err.splitlines()
    assert frames[0] == "  0 " + "░" * 32
    assert frames[-1] == "40 tokens in 8 forwards (5.0 tokens a forward)"
    assert "░" not in frames[-2]
    assert printed.out.strip()
