"""An evaluation from its settings to its files, with a stand-in for the app."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.bench.evaluation.evaluate import Evaluation, prepare, run_evaluation
from raydiff.bench.evaluation.settings import parse_setting
from raydiff.config import CorpusSettings
from raydiff.errors import DecodingError, InputError, RunConflict, UsageError

from .standin import POISON, StandIn

TEXTS = [f"tools to read file {i} of the web, ask me@file.org" for i in range(20)]
REFERENCES = [" ".join(text.split()[:4]) for text in TEXTS]


def write(folder: Path, texts: list[str | None], references: list[str | None] | None) -> Path:
    columns: dict[str, list[Any]] = {"text": texts}
    if references is not None:
        columns["summary"] = references
    path = folder / "corpus.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def evaluation(source: Path, model: Path, *names: str) -> Evaluation:
    corpus = CorpusSettings(
        input=str(source), output=str(source.parent / "out"), model=str(model), max_attempts=1
    )
    settings = tuple(parse_setting(name) for name in names or ("steps=1", "steps=2", "steps=4"))
    return Evaluation(corpus=corpus, settings=settings, rounds=2, reference_column="summary")


def run(asked: Evaluation) -> dict[str, Any]:
    return run_evaluation(prepare(asked), StandIn(asked.corpus.model), lambda line: None)


@pytest.fixture
def asked(tmp_path: Path, tiny_checkpoint: Path) -> Evaluation:
    return evaluation(write(tmp_path, [*TEXTS], [*REFERENCES]), tiny_checkpoint)


def files(asked: Evaluation) -> dict[str, bytes]:
    folder = Path(asked.corpus.output)
    return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.exists() else {}


def test_the_report_names_the_best_and_the_fastest_within_the_loss(asked: Evaluation) -> None:
    report = run(asked)
    assert report["metric"] == "rougeL"
    assert report["reference"] == "steps=4"
    found = {s["name"]: s for s in report["settings"]}
    assert found["steps=4"]["quality"] == 1
    assert found["steps=2"]["loss"] == pytest.approx(1 - 2 * 2 / (2 + 4))
    assert [s["within"] for s in report["settings"]] == [False, False, True]
    assert report["fastest"] == "steps=4"
    generous = replace(asked, max_loss=1.0, corpus=moved(asked.corpus, "generous"))
    again = run(generous)
    speeds = {s["name"]: s["output_tokens_per_s"] for s in again["settings"]}
    assert again["fastest"] == max(speeds, key=lambda name: speeds[name])


def moved(corpus: CorpusSettings, name: str) -> CorpusSettings:
    return corpus.model_copy(update={"output": f"{corpus.output}-{name}"})


def test_files_hold_scores_and_summary_but_no_text(asked: Evaluation) -> None:
    report = run(asked)
    written = files(asked)
    assert set(written) == {
        "scores.parquet",
        "summary.parquet",
        "summary.json",
        "report.md",
        "quality_over_speed.png",
    }
    assert json.loads(written["summary.json"]) == json.loads(json.dumps(report))
    scores = pq.read_table(Path(asked.corpus.output) / "scores.parquet")
    assert scores.num_rows == 3 * 20
    assert not {"document", "text"} & set(scores.column_names)
    summary = pq.read_table(Path(asked.corpus.output) / "summary.parquet").to_pylist()
    assert [row["rougeL"] for row in summary] == pytest.approx([0.4, 2 / 3, 1.0])
    close = 1e-9
    assert all(row["rougeL_low"] - close <= row["rougeL"] for row in summary)
    assert all(row["rougeL"] <= row["rougeL_high"] + close for row in summary)
    assert b"steps=4 is the fastest" in written["report.md"]
    assert not [name for name, content in written.items() if b"tools to read" in content]


def test_a_sheet_and_texts_come_only_when_asked_for_and_redacted(asked: Evaluation) -> None:
    run(replace(asked, sheet=6, include_text=True))
    written = files(asked)
    assert {"sheet.csv", "sheet.html", "sheet_key.csv"} < set(written)
    scores = pq.read_table(Path(asked.corpus.output) / "scores.parquet")
    assert scores["document"][0].as_py().endswith("ask [email]")
    assert not [name for name, content in written.items() if b"me@file.org" in content]


def test_nothing_is_written_when_the_redaction_fails(
    asked: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_hook.py").write_text(
        "def redact(text):\n    if 'file 7' in text: raise KeyError(text)\n    return text\n"
    )
    monkeypatch.chdir(tmp_path)
    broken = replace(asked, include_text=True, redact="failing_hook:redact")
    with pytest.raises(UsageError, match=r"raised KeyError\. Nothing was written") as caught:
        run(broken)
    assert "tools to read" not in str(caught.value)
    assert files(asked) == {}


def test_failed_documents_count_as_nothing_delivered(tmp_path: Path, tiny_checkpoint: Path) -> None:
    texts = [*TEXTS[:9], f"{POISON} of data"]
    source = write(tmp_path, texts, [*REFERENCES[:9], "tools"])
    asked = evaluation(source, tiny_checkpoint)
    report = run(asked)
    best = report["settings"][2]
    assert (best["failed"], best["error_types"]) == (1, {"EngineError": 1})
    assert best["quality"] == pytest.approx(0.9)
    assert best["metrics"]["rougeL"]["documents"] == 9
    assert b"EngineError 1" in files(asked)["report.md"]


def test_documents_without_a_reference_do_not_count_for_rouge(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    references = [*REFERENCES[:5], *[None] * 10, *[""] * 5]
    report = run(evaluation(write(tmp_path, [*TEXTS], references), tiny_checkpoint))
    best = report["settings"][2]
    assert best["quality"] == 1
    assert best["metrics"]["rougeL"]["documents"] == 5
    assert best["metrics"]["coverage"]["documents"] == 20


def test_without_references_settings_are_judged_by_coverage(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    source = write(tmp_path, [*TEXTS], None)
    asked = replace(evaluation(source, tiny_checkpoint), reference_column=None)
    report = run(asked)
    assert report["metric"] == "coverage"
    assert report["settings"][0]["metrics"]["rougeL"] is None
    with pytest.raises(UsageError, match=r"metric: .*rouge1 needs references"):
        prepare(replace(asked, metric="rouge1", corpus=moved(asked.corpus, "other")))


def test_one_setting_alone_is_reported_but_makes_no_sheet(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    asked = evaluation(write(tmp_path, [*TEXTS], [*REFERENCES]), tiny_checkpoint, "steps=2")
    with pytest.raises(UsageError, match="at least two"):
        prepare(replace(asked, sheet=3))
    report = run(asked)
    assert (report["reference"], report["fastest"], report["speedup"]) == ("steps=2", "steps=2", 1)


def test_other_scripts_and_what_is_no_text(tmp_path: Path, tiny_checkpoint: Path) -> None:
    texts = ["小さな図書館 で 読む", "маленькая библиотека для файлов", None, " "]
    report = run(
        evaluation(write(tmp_path, texts, ["小さな図書館", "x", "y", "z"]), tiny_checkpoint)
    )
    assert (report["documents"], report["unreadable"]) == (2, 2)


def test_without_settings_a_sweep_is_taken(asked: Evaluation) -> None:
    prepared = prepare(replace(asked, settings=()))
    assert len(prepared.settings) > 3
    assert prepared.settings[0].name == "default"


def test_what_settings_leave_open_comes_from_the_flags(asked: Evaluation) -> None:
    from raydiff.decoding import Decoding

    prepared = prepare(replace(asked, base=Decoding(max_tokens=4, steps=3)))
    assert [s.decoding.max_tokens for s in prepared.settings] == [4, 4, 4]
    assert [s.decoding.steps for s in prepared.settings] == [1, 2, 4]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"documents": 0}, UsageError, "documents: expected"),
        ({"rounds": 0}, UsageError, "rounds: expected"),
        ({"max_loss": 2.0}, UsageError, "max_loss: expected"),
        ({"reference_setting": "best"}, UsageError, "reference_setting: expected one of steps=1"),
        ({"reference_column": "gold"}, InputError, "reference_column: "),
        ({"metric": "density"}, UsageError, "metric: expected one of"),
        ({"redact": "absent:hook"}, UsageError, "redact: expected"),
        ({"settings": (parse_setting("steps=999"),)}, DecodingError, "setting 'steps=999'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    asked: Evaluation, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        prepare(replace(asked, **changes))


def test_an_earlier_evaluation_is_not_overwritten(asked: Evaluation) -> None:
    run(asked)
    before = files(asked)
    with pytest.raises(RunConflict, match="holds an evaluation"):
        prepare(asked)
    assert files(asked) == before
