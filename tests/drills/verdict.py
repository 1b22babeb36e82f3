"""What became of a run, told from its input and output files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .corpus import Corpus
from .outputs import Output, parts


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The faults found; none if every row came out once and rightly."""

    rows_in: int
    rows_out: int
    errors_out: int
    faults: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing was lost, repeated or wrong."""
        return not self.faults


def judge(
    corpus: Corpus,
    output: Output,
    reference: Mapping[str, str],
    committed: Mapping[str, str],
    attempts: int,
) -> Verdict:
    """Compare output with input.

    Args:
        reference: the text that an undisturbed run gives for each document.
        committed: part files that were there at some fault, with their versions.
        attempts: how often a document that kills something is tried.
    """
    files = output.files()
    good = [
        row
        for name in parts(files)
        for row in output.table(name)
        .select(["doc_id", "source_file", "source_row", "summary"])
        .to_pylist()
    ]
    bad = [
        row
        for name in files
        if name.startswith("errors/") and name.endswith(".parquet")
        for row in output.table(name).to_pylist()
    ]
    faults = [
        *_counted(corpus, good, bad),
        *_texts(corpus, good, reference),
        *_errors(corpus, bad, attempts),
        *_files(files, committed),
    ]
    return Verdict(
        rows_in=len(corpus.texts), rows_out=len(good), errors_out=len(bad), faults=tuple(faults)
    )


def _counted(corpus: Corpus, good: list[dict], bad: list[dict]) -> list[str]:  # type: ignore[type-arg]  # rows of Parquet
    faults = []
    seen = Counter((row["source_file"], row["source_row"]) for row in (*good, *bad))
    for row in range(len(corpus.texts)):
        times = seen.pop((corpus.path.name, row), 0)
        if times == 0:
            faults.append(f"row {row} is lost")
        elif times > 1:
            faults.append(f"row {row} came out {times} times")
    faults.extend(f"{place} is no row of the input" for place in seen)
    faults.extend(
        f"row {row['source_row']} has id {row['doc_id']}"
        for row in (*good, *bad)
        if row["doc_id"] != f"doc-{row['source_row']}"
    )
    return faults


def _texts(corpus: Corpus, good: list[dict], reference: Mapping[str, str]) -> list[str]:  # type: ignore[type-arg]  # rows of Parquet
    faults = []
    for row in good:
        place = row["source_row"]
        if place in corpus.culprits:
            faults.append(f"row {place} should have failed")
        elif row["summary"] != reference[corpus.texts[place]]:
            faults.append(f"row {place} has another text than an undisturbed run gives")
    return faults


def _errors(corpus: Corpus, bad: list[dict], attempts: int) -> list[str]:  # type: ignore[type-arg]  # rows of Parquet
    faults = []
    for row in bad:
        place, kind = row["source_row"], row["error_type"]
        expected = corpus.culprits.get(place)
        if kind != expected:
            faults.append(f"row {place} failed with {kind}, expected {expected}")
        elif kind.endswith("Died") and row["attempts"] != attempts:
            faults.append(f"row {place} has {row['attempts']} attempts, expected {attempts}")
    return faults


def _files(files: Mapping[str, str], committed: Mapping[str, str]) -> list[str]:
    faults = [
        f"committed file {name} was written again or is gone"
        for name, version in committed.items()
        if files.get(name) != version
    ]
    faults.extend(f"{name} is left over" for name in files if ".tmp-" in name)
    faults.extend(f"{name} is left over" for name in files if name.startswith("attempts/"))
    if "_SUCCESS" not in files:
        faults.append("there is no _SUCCESS")
    return faults
