"""`raydiff generate` prints the text and nothing else on standard output."""

from __future__ import annotations

import io
import json
from itertools import pairwise
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


def _watched(
    capsys: pytest.CaptureFixture[str], text: str, model: str, *options: str
) -> tuple[list[str], str]:
    """The frames, and the text that was printed."""
    common = ["--device", "cpu", "--dtype", "fp32", "--threads", "1", "--ignore-eos"]
    assert main(["generate", text, "--model", model, "--watch", *common, *options]) == 0
    printed = capsys.readouterr()
    return [line[4:] for line in printed.err.splitlines()[:-1]], printed.out


def test_a_block_that_the_prompt_begins_is_watched_without_the_prompt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frames, text = _watched(capsys, "abcdef", "random:tiny-sdar", "--raw", "--max-tokens", "7")
    assert frames[0] == "░░"  # blocks of 4: two tokens of the prompt's last block are the prompt's
    assert " ".join(frames[-1].split()) == " ".join(text.split())


def test_uniform_noise_is_watched_as_the_text_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--steps", "4", "--max-tokens", "9", "--seed", "1")
    frames, text = _watched(capsys, "ab", "random:tiny-diffusion-gemma", *options)
    assert len(frames) > 1
    assert not any("░" in frame for frame in frames)
    assert " ".join(frames[-1].split()) == " ".join(text.split())


def test_revised_positions_open_again_before_the_eyes(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--remask", "cap", "--eta", "0.9", "--steps", "12", "--max-tokens", "12")
    frames, text = _watched(capsys, "ab", "random:tiny-a2d-mdlm", *options, "--seed", "5")
    shaded = [frame.count("░") for frame in frames]
    assert any(later > earlier for earlier, later in pairwise(shaded))
    assert shaded[-1] == 0
    assert " ".join(frames[-1].split()) == " ".join(text.split())


@pytest.mark.parametrize(("flags", "asked"), [([], True), (["--raw"], False)])
def test_a_model_with_a_chat_template_is_asked_unless_told_to_continue(
    flags: list[str], asked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "random:tiny-sdar", "--device", "cpu", "--threads", "1", "--json"]
    assert main(["generate", "hello", "--max-tokens", "1", *options, *flags]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["prompt_tokens"] > len("hello")) == asked
