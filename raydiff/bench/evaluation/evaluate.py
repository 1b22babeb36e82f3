"""An evaluation from its settings to its files.

Everything that can be refused is refused by `prepare`, before a model runs. Nothing is written
before all of it is made and redacted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raydiff.bench.evaluation.generation import Measured, Passes, take_turns
from raydiff.bench.evaluation.markdown import markdown
from raydiff.bench.evaluation.overlap import Rouge
from raydiff.bench.evaluation.plot import plot, require_plotting
from raydiff.bench.evaluation.redaction import Redaction, load_redaction
from raydiff.bench.evaluation.scores import METRICS, QUALITY
from raydiff.bench.evaluation.settings import (
    Setting,
    completed,
    default_sweep,
    resolve_settings,
)
from raydiff.bench.evaluation.sheet import Sheet, make_sheet
from raydiff.bench.evaluation.summary import Criterion, Scored, judge, score_all, summarise
from raydiff.bench.evaluation.tables import parquet, scores_table, summary_table
from raydiff.bench.report import circumstances
from raydiff.bench.requests import document_prompts
from raydiff.bench.sample import Document, draw_sample
from raydiff.config import CorpusSettings
from raydiff.corpus.sending import Generator
from raydiff.decoding import Decoding
from raydiff.errors import InputError, RunConflict, UsageError, invalid
from raydiff.families import load_spec
from raydiff.storage import Folder, open_folder
from raydiff.text import Tokenizer, decoding_for

REPORT = "report.md"
SUMMARY = "summary.json"
PLOT = "quality_over_speed.png"

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is to be evaluated."""

    corpus: CorpusSettings
    """The input and what is asked of its documents; `output` is where the findings go."""
    settings: tuple[Setting, ...] = ()
    """To compare; none takes a sweep over steps and thresholds."""
    base: Decoding = field(default_factory=Decoding)
    """What settings leave open."""
    documents: int = 200
    """Size of the sample."""
    rounds: int = 3
    reference_column: str | None = None
    metric: str | None = None
    """What settings are judged by; `None` is ROUGE-L with references and coverage without."""
    max_loss: float = 0.01
    reference_setting: str | None = None
    include_text: bool = False
    """Whether the scores of each document come with its texts."""
    sheet: int = 0
    """Documents of a blind sheet for people; it has their texts."""
    redact: str = "addresses"
    calls_in_flight: int = 8


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An evaluation that can run."""

    evaluation: Evaluation
    settings: tuple[Setting, ...]
    documents: tuple[Document, ...]
    unreadable: int
    """Documents of the sample that are no text."""
    criterion: Criterion
    redact: Redaction
    tokenizer: Tokenizer
    folder: Folder


def prepare(evaluation: Evaluation) -> Prepared:
    """Check the settings, draw the sample and load what is needed.

    Raises:
        UsageError: a setting, a column or a path cannot work.
        ModelError: there is no such model.
    """
    _check(evaluation)
    corpus = evaluation.corpus
    spec = load_spec(corpus.model)
    base = decoding_for(corpus.model, corpus.task, evaluation.base)
    wanted = evaluation.settings or default_sweep(spec)
    settings = resolve_settings([completed(setting, base) for setting in wanted], spec)
    _check_names(evaluation, settings)
    tokenizer = Tokenizer.load(corpus.model)
    for setting in settings:
        document_prompts(corpus, tokenizer, setting.decoding)
    redact = load_redaction(evaluation.redact)
    sample = draw_sample(
        corpus,
        evaluation.documents,
        seed=corpus.seed,
        reference_column=evaluation.reference_column,
    )
    documents = tuple(d for d in sample.documents if isinstance(d.text, str))
    if not documents:
        raise InputError(f"input: none of {len(sample.documents)} documents is text.", "input")
    return Prepared(
        evaluation=evaluation,
        settings=tuple(settings),
        documents=documents,
        unreadable=len(sample.documents) - len(documents),
        criterion=_criterion(evaluation, documents),
        redact=redact,
        tokenizer=tokenizer,
        folder=_output(corpus),
    )


def _check(evaluation: Evaluation) -> None:
    require_plotting()
    for name in ("documents", "rounds", "calls_in_flight"):
        value = getattr(evaluation, name)
        if value < 1:
            raise UsageError(invalid(name, expected="an integer of at least 1", got=value), name)
    if not 0 <= evaluation.max_loss <= 1:
        expected = f"a number in [0, 1], of a score in [0, 1] ({', '.join(QUALITY)})"
        raise UsageError(invalid("max_loss", expected=expected, got=evaluation.max_loss))


def _check_names(evaluation: Evaluation, settings: list[Setting]) -> None:
    names = [setting.name for setting in settings]
    wanted = evaluation.reference_setting
    if wanted is not None and wanted not in names:
        expected = f"one of {', '.join(names)}"
        raise UsageError(invalid("reference_setting", expected=expected, got=wanted))
    if evaluation.sheet and len(names) < 2:
        remedy = "A sheet shows the texts of two settings side by side."
        message = invalid("settings", expected="at least two", got=names, remedy=remedy)
        raise UsageError(message, "sheet")


def _criterion(evaluation: Evaluation, documents: tuple[Document, ...]) -> Criterion:
    referenced = any(document.reference for document in documents)
    metric = evaluation.metric or ("rougeL" if referenced else "coverage")
    if metric not in QUALITY:
        raise UsageError(invalid("metric", expected=f"one of {', '.join(QUALITY)}", got=metric))
    if METRICS[metric].needs_reference and not referenced:
        column = evaluation.reference_column
        why = f"column {column!r} holds none" if column else "no reference column is named"
        remedy = f"Choose among {', '.join(q for q in QUALITY if not METRICS[q].needs_reference)}."
        message = invalid("metric", expected="one that needs no references", got=metric)
        raise UsageError(f"{message} {metric} needs references, but {why}. {remedy}", "metric")
    return Criterion(
        metric=metric, max_loss=evaluation.max_loss, reference=evaluation.reference_setting
    )


def _output(corpus: CorpusSettings) -> Folder:
    folder = open_folder(corpus.output, "output", corpus.storage)
    if folder.exists(SUMMARY):
        message = f"output: {folder.uri} holds an evaluation. Choose another directory."
        raise RunConflict(message, "output")
    return folder


def run_evaluation(prepared: Prepared, generator: Generator, progress: Progress) -> dict[str, Any]:
    """Generate, score, judge, and write all files; returns what `summary.json` holds.

    Raises:
        RaydiffError: the service is gone, or the redaction failed; nothing is written.
    """
    evaluation = prepared.evaluation
    passes = Passes(
        generator=generator,
        settings=evaluation.corpus,
        tokenizer=prepared.tokenizer,
        calls_in_flight=evaluation.calls_in_flight,
    )
    turns = take_turns(
        passes,
        prepared.documents,
        prepared.settings,
        rounds=evaluation.rounds,
        progress=progress,
    )
    measured = asyncio.run(turns)
    report, files = findings(prepared, measured)
    prepared.folder.make()
    for name, content in files.items():
        prepared.folder.put(name, content)
    return report


def findings(
    prepared: Prepared, measured: list[Measured]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The report, and the content of every file by name, the summary last.

    Raises:
        UsageError: the redaction failed.
    """
    evaluation, documents = prepared.evaluation, prepared.documents
    seed = evaluation.corpus.seed
    rouge = Rouge().score if any(d.reference for d in documents) else None
    scored = [score_all(documents, one, rouge) for one in measured]
    choice = judge(documents, scored, prepared.criterion, seed)
    report = {
        "bench": "evaluation",
        "circumstances": circumstances(),
        "model": evaluation.corpus.model,
        "input": evaluation.corpus.input,
        "documents": len(documents),
        "unreadable": prepared.unreadable,
        "rounds": evaluation.rounds,
        "seed": seed,
        **summarise(scored, choice, prepared.criterion, seed),
    }
    texts = prepared.redact if evaluation.include_text else None
    files = {
        "scores.parquet": parquet(scores_table(documents, scored, texts)),
        "summary.parquet": parquet(summary_table(report["settings"])),
        PLOT: plot(report, f"{report['model']}, {len(documents)} documents"),
    }
    if evaluation.sheet:
        sheet = _sheet(prepared, scored, report)
        report["sheet"] = {"documents": len(sheet.rows), "same_texts": sheet.same_texts}
        files |= sheet.files()
    files[REPORT] = markdown(report, PLOT).encode()
    files[SUMMARY] = json.dumps(report, indent=1, ensure_ascii=False).encode()
    return report, files


def _sheet(prepared: Prepared, scored: list[Scored], report: dict[str, Any]) -> Sheet:
    """The reference beside the setting that was named, or, if that is the same, beside the one
    with the next smallest loss."""
    by_name = {one.name: one.measured for one in scored}
    reference, other = report["reference"], report["fastest"]
    if other == reference:
        others = [s for s in report["settings"] if s["name"] != reference]
        other = min(others, key=lambda s: float(s["loss"]))["name"]
    return make_sheet(
        prepared.documents,
        (by_name[reference], by_name[other]),
        count=prepared.evaluation.sheet,
        seed=prepared.evaluation.corpus.seed,
        redact=prepared.redact,
    )
