"""`raydiff summarize`: what it refuses, what it reports, and its exit status. No cluster here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.cli import build_parser, main
from raydiff.cli.corpus_flags import corpus_settings
from raydiff.config import CorpusSettings, TaskSettings
from raydiff.corpus.commit import Totals, commit_shard
from raydiff.corpus.directory import open_run
from raydiff.request import Decoding

FAILED = 2
"""Documents of the committed run that failed."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"doc_id": list("abcdef"), "text": list("uvwxyz")}), path)
    return path


@pytest.fixture
def model(toy_model: str) -> str:
    return toy_model


def arguments(*given: Any) -> list[str]:
    return ["summarize", *(str(argument) for argument in given)]


def commit(source: Path, output: Path, model: str, *, failed: int) -> None:
    """Leave a run whose only shard is committed, as a kill just before the end would."""
    settings = settings_of(source, output, "--model", model)
    with open_run(settings, Decoding()) as run:
        (shard,) = run.pending
        good = pa.table({"summary": ["s"] * (shard.rows - failed)})
        bad = pa.table({"error_type": pa.array(["NullDocument"] * failed, pa.string())})
        totals = Totals(prompt_tokens=10, completion_tokens=4, forwards=2)
        commit_shard(run.folder, shard, good, bad, totals, started_s=0.0)


def settings_of(*given: Any) -> CorpusSettings:
    return corpus_settings(build_parser().parse_args(arguments(*given)), TaskSettings())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--text-column", "body"], "text_column: .* has no column 'body'"),
        (["--id-column", "key"], "id_column: .* has no column 'key'"),
        (["--pass-columns", "text,nope"], "pass_columns: .* has no column 'nope'"),
        (["--shard-rows", "0"], "--shard-rows: expected an integer of at least 1, got 0"),
        (["--replicas", "0"], "--replicas: expected an integer of at least 1, got 0"),
        (["--max-failed-fraction", "2"], r"--max-failed-fraction: expected a number in \[0, 1\]"),
        (["--stuck-after", "0"], "--stuck-after: expected a number of seconds above 0"),
        (["--template", "@absent"], "--template: expected a readable text file"),
        (["--seed", "-1"], "--seed: expected an integer of at least 0"),
        (["--steps", "0"], "steps: expected an integer of at least 1, got 0"),
        (["--threshold", "2"], r"threshold: expected a number in \[0, 1\], got 2.0"),
        (["--steps", "99"], "steps: expected at most block_length"),
        (["--max-tokens", "1000"], "max_tokens: expected at most 32"),
        (["--instruction", "Do."], "instruction: expected none for model .*no chat template"),
    ],
)
def test_impossible_values_are_a_usage_error_that_names_them(
    source: Path,
    tmp_path: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    status = main(arguments(source, tmp_path / "out", "--model", model, *options))
    assert status == 2
    assert_says(capsys, said)
    assert not (tmp_path / "out").exists()


def assert_says(capsys: pytest.CaptureFixture[str], said: str) -> None:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("raydiff: ")
    assert re.search(said, captured.err), captured.err
    assert "Traceback" not in captured.err


def test_no_such_input(tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path / "absent", tmp_path / "out", "--model", model)) == 2
    assert_says(capsys, "There is no such path")


def test_an_unknown_model_could_not_run(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(source, tmp_path / "out", "--model", "nobody")) == 3
    assert_says(capsys, "model: expected a bundled name")


def test_an_output_of_another_run_names_the_difference(
    source: Path, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(source, tmp_path / "out", model, failed=0)
    before = sorted((tmp_path / "out").rglob("*"))
    status = main(arguments(source, tmp_path / "out", "--model", model, "--steps", "8"))
    assert status == 2
    assert_says(capsys, "holds another run: decoding.steps was 4, now 8")
    assert sorted((tmp_path / "out").rglob("*")) == before


@pytest.mark.parametrize(("failed", "status"), [(0, 0), (FAILED, 1)])
def test_a_run_with_nothing_left_to_do_ends_without_a_cluster(
    source: Path,
    tmp_path: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    failed: int,
    status: int,
) -> None:
    commit(source, tmp_path / "out", model, failed=failed)
    command = arguments(source, tmp_path / "out", "--model", model)
    assert main(command) == status
    assert f"{6 - failed} summarised, {failed} failed" in capsys.readouterr().out
    assert main([*command, "--json"]) == status
    captured = capsys.readouterr()
    assert "nothing is left to do" in captured.err
    report = json.loads(captured.out)
    assert (report["rows"], report["failed"]) == (6, failed)


def test_failures_are_counted_by_kind(
    source: Path, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(source, tmp_path / "out", model, failed=2)
    main(arguments(source, tmp_path / "out", "--model", model))
    assert "2 failed (NullDocument 2)" in capsys.readouterr().out


def test_flags_become_settings() -> None:
    settings = settings_of(
        "in", "out", "--pass-columns", "a,b", "--pass-columns", "c", "--seed", "7"
    )
    assert settings.pass_columns == ("a", "b", "c")
    assert (settings.seed, settings.shard_rows, settings.replicas) == (7, 256, None)


def test_prompt_flags_become_a_task(tmp_path: Path) -> None:
    (tmp_path / "system").write_text("Be brief.\n")
    (tmp_path / "examples").write_text('{"text": "t", "answer": "a"}\n\n')
    flags = ["--system", f"@{tmp_path / 'system'}", "--examples", tmp_path / "examples"]
    task = settings_of("in", "out", *flags, "--template", "Shorten: {text}").task
    assert (task.system, task.template) == ("Be brief.", "Shorten: {text}")
    assert task.examples == (("t", "a"),)


def test_the_store_is_named_by_the_flag_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://any")
    assert settings_of("in", "out").storage.endpoint_url == "http://any"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3")
    assert settings_of("in", "out").storage.endpoint_url == "http://s3"
    given = settings_of("in", "out", "--endpoint-url", "http://given")
    assert given.storage.endpoint_url == "http://given"


def test_in_a_submitted_job_the_output_must_be_absolute(
    source: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert main(arguments(source, "out", "--model", model)) == 2
    assert_says(capsys, "output: expected an absolute path or an s3:// address")
