"""The command line's contract: exit status, errors on stderr, nothing heavy for nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from raydiff import cli
from raydiff.cli import generate, main
from raydiff.errors import ClusterError, EngineError, ModelError, RaydiffError, RunConflict


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """`raydiff generate` raises what the test puts into the list."""
    errors: list[BaseException] = []

    def fail(args: object) -> int:
        raise errors[0]

    monkeypatch.setattr(generate, "run", fail)
    return errors  # type: ignore[return-value]  # a list is what the tests fill


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunConflict("output: taken."), 2),
        (ModelError("model: unknown."), 3),
        (ClusterError("no cluster."), 3),
        (EngineError("broken."), 3),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_errors_have_their_exit_status(
    raising: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
) -> None:
    raising.append(error)
    assert main(["generate", "x"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (f"raydiff: {error}\n" if isinstance(error, RaydiffError) else "")


def test_a_full_disk_is_one_line_and_not_the_status_of_failed_documents(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(OSError(errno.ENOSPC, "No space left on device", "/out/_run.json"))
    assert main(["generate", "x"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device: '/out/_run.json'. What is done is kept" in line


def test_a_fault_of_ours_keeps_its_traceback(raising: list[BaseException]) -> None:
    raising.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["generate", "x"])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["generate"], ["bench"], ["train"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: raydiff" in capsys.readouterr().err


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in cli.COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0
        assert f"usage: raydiff {command}" in capsys.readouterr().out


def test_impossible_decoding_and_unknown_models_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["generate", "x", "--steps", "0"]) == 2
    assert capsys.readouterr().err == (
        "raydiff: steps: expected an integer of at least 1, got 0.\n"
    )
    assert main(["generate", "x", "--model", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("raydiff: model: expected a bundled name")
