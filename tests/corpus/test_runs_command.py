"""`raydiff runs`: shows, resumes, compacts and verifies a run by its directory alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from raydiff.cli import main
from raydiff.config import CorpusSettings, TaskSettings
from raydiff.corpus.closing import close
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.report import Session, stopped_report
from raydiff.request import Decoding
from raydiff.storage import hold

from .committing import commit_all
from .conftest import WriteCorpus


@pytest.fixture
def settings(
    tmp_path: Path, write_corpus: WriteCorpus, toy_model: str, monkeypatch: pytest.MonkeyPatch
) -> CorpusSettings:
    write_corpus(tmp_path / "in" / "a.parquet", [f"secret {i}" for i in range(12)])
    monkeypatch.chdir(tmp_path)
    return CorpusSettings(
        input="in",
        output="out",
        model=toy_model,
        shard_rows=4,
        seed=7,
        task=TaskSettings(template="Shorten: {text}", target_words=3),
    )


def run_of(settings: CorpusSettings, shards: int | None = None) -> RunDirectory:
    with open_run(settings, Decoding(steps=2, stop=("x",))) as run:
        commit_all(run, run.pending[:shards], failed=1)
        if shards is None:
            close(run, Session())
    return run


def called(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """Exit status, and what was printed: as JSON if it is."""
    status = main(["runs", *arguments])
    out = capsys.readouterr().out
    try:
        return status, json.loads(out)
    except ValueError:
        return status, out


def test_show_tells_how_far_a_run_is_and_what_failed(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(settings, 2)
    status, state = called("show", "out", "--json", capsys=capsys)
    assert status == 0
    assert (state["status"], state["driver"]) == ("stopped", None)
    assert (state["documents"], state["done"], state["failed"]) == (12, 8, 2)
    assert (state["shards"], state["committed"], state["parts"]) == (3, 2, 2)
    assert (state["prompt_tokens"], state["output_tokens"], state["forwards"]) == (20, 8, 4)
    assert state["documents_per_s"] > 0
    assert state["error_types"] == {"EmptyDocument": 2}
    example = state["error_examples"]["EmptyDocument"][0]
    assert example["message"] == "The text is empty."
    assert state["settings"]["seed"] == 7
    assert "secret" not in json.dumps(state)


def test_show_is_for_people_too(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(settings)
    status, text = called("show", "out", capsys=capsys)
    assert status == 0
    assert "status      done" in text
    assert "documents   12 of 12 (100.0%), 3 failed" in text
    assert "EmptyDocument 3" in text


def test_show_names_the_driver(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(settings, 1)
    with hold(run.folder):
        _, state = called("show", "out", "--json", capsys=capsys)
    assert (state["status"], state["driver"]) == ("running", f"process {os.getpid()}")


def test_compact_merges_and_says_so(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(settings)
    status, result = called("compact", "out", "--target-mb", "1", "--json", capsys=capsys)
    assert status == 0
    assert (result["parts_before"], result["parts_after"], result["complete"]) == (3, 1, True)
    assert called("verify", "out", capsys=capsys)[0] == 0


def test_verify_ends_with_status_1_and_names_the_file(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(settings)
    status, found = called("verify", "out", "--json", capsys=capsys)
    assert (status, found["sound"], found["rows"], found["failed"]) == (0, True, 9, 3)
    part = next(n for n in run.folder.names() if n.startswith("part-"))
    run.folder.put(part, run.folder.read(part)[:-20])
    status, text = called("verify", "out", capsys=capsys)
    assert status == 1
    assert f"{part}: unreadable" in text


def test_verify_counts_repeated_ids_where_the_run_did_not(
    settings: CorpusSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("raydiff.corpus.ids.COUNTED_ROWS", 3)
    run = run_of(settings)
    assert run.saved_report()["repeated_ids"] is None
    assert called("verify", "out", capsys=capsys)[0] == 0
    assert run.saved_report()["repeated_ids"] == 0


def test_resume_has_the_saved_settings_from_any_directory(
    settings: CorpusSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run's own fingerprint says whether they are the same."""
    run_of(settings, 1)
    resumed: list[RunDirectory] = []

    def execute(run: RunDirectory, options: Any) -> dict[str, Any]:
        resumed.append(run)
        commit_all(run)
        return close(run, Session())

    monkeypatch.setattr("raydiff.cli.corpus_run._execute", execute)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    status, _ = called("resume", "../out", "--replicas", "2", "--json", capsys=capsys)
    assert status == 1, "documents of the first shard had failed"
    (run,) = resumed
    assert run.settings.task == settings.task
    assert (run.settings.seed, run.settings.replicas) == (7, 2)
    assert (run.decoding.steps, run.decoding.stop) == (2, ("x",))
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_a_pattern_is_saved_for_any_directory(settings: CorpusSettings, tmp_path: Path) -> None:
    run = run_of(settings.model_copy(update={"input": "in/*.parquet"}), 1)
    assert run.plan.settings["input"] == str(tmp_path / "in" / "*.parquet")


def test_a_run_stopped_after_its_last_write_has_its_report_again(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(settings)
    run.write_report(stopped_report(run, Session(), KeyboardInterrupt()))
    status, report = called("resume", "out", "--json", capsys=capsys)
    assert (status, report["status"], report["failed"]) == (1, "done", 3)


def test_resume_with_append_takes_new_files(
    settings: CorpusSettings,
    tmp_path: Path,
    write_corpus: WriteCorpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_of(settings)
    write_corpus(tmp_path / "in" / "b.parquet", ["new"])

    def execute(run: RunDirectory, options: Any) -> dict[str, Any]:
        commit_all(run)
        return close(run, Session())

    monkeypatch.setattr("raydiff.cli.corpus_run._execute", execute)
    assert called("resume", "out", capsys=capsys)[0] == 2
    status, report = called("resume", "out", "--append", "--json", capsys=capsys)
    assert (status, report["rows"], len(report["appends"])) == (1, 13, 1)


@pytest.mark.parametrize("action", ["show", "resume", "compact", "verify"])
def test_a_directory_without_a_run_is_refused(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", action, str(tmp_path)]) == 2
    assert "holds no raydiff run" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--replicas", "--threads"])
def test_a_number_that_is_none_is_refused(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "resume", str(tmp_path), flag, "0"]) == 2
    assert f"{flag}: expected an integer of at least 1, got 0" in capsys.readouterr().err


def test_a_size_that_is_none_is_refused(
    settings: CorpusSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(settings, 1)
    assert main(["runs", "compact", "out", "--target-mb", "0"]) == 2
    assert "target_mb: expected an integer of at least 1" in capsys.readouterr().err
