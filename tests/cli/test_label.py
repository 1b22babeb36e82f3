"""The labels that `raydiff label` is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.cli import build_parser, main
from raydiff.cli.label import labels_from


def parsed(*arguments: str) -> tuple[str, ...]:
    return labels_from(build_parser().parse_args(["label", "in", "out", *arguments]))


def test_labels_stand_between_commas() -> None:
    assert parsed("--labels", "sport, the weather,politics") == ("sport", "the weather", "politics")


def test_a_file_has_one_label_a_line_and_labels_may_hold_commas(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("arts, crafts\n\n  sport \n", encoding="utf-8")
    assert parsed("--labels-file", str(file)) == ("arts, crafts", "sport")


@pytest.mark.parametrize("arguments", [(), ("--labels", "a,b", "--labels-file", "x")])
def test_labels_come_from_one_place(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(*arguments)
    assert caught.value.code == 2
    assert "--labels" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "none.txt")
    assert main(["label", "in", "out", "--labels-file", missing]) == 2
    assert missing in capsys.readouterr().err
