"""A run directory is begun, continued, or refused; nothing in it is lost or mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.closing import close
from raydiff.corpus.commit import shard_part
from raydiff.corpus.directory import RunDirectory, open_run
from raydiff.corpus.report import Session
from raydiff.errors import (
    ClusterError,
    DecodingError,
    InputError,
    ModelError,
    RunConflict,
    UsageError,
)
from raydiff.request import Decoding

from .committing import commit_all
from .conftest import WriteCorpus


@pytest.fixture
def settings(tmp_path: Path, write_corpus: WriteCorpus, toy_model: str) -> CorpusSettings:
    write_corpus(tmp_path / "in" / "a.parquet", [f"t{i}" for i in range(10)])
    return CorpusSettings(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), model=toy_model, shard_rows=4
    )


def opened(settings: CorpusSettings, **changes: Any) -> RunDirectory:
    decoding = changes.pop("decoding", Decoding())
    with open_run(settings.model_copy(update=changes), decoding) as run:
        return run


def test_a_new_run_has_a_plan_and_nothing_committed(settings: CorpusSettings) -> None:
    run = opened(settings)
    assert [shard.rows for shard in run.pending] == [3, 3, 4]
    assert not run.finished
    assert run.folder.names() == [".lock", "files.parquet", "plan.parquet"]


def test_a_continued_run_knows_what_is_committed(settings: CorpusSettings) -> None:
    run = opened(settings)
    first, *rest = run.pending
    commit_all(run, [first])
    again = opened(settings)
    assert again.pending == rest
    assert [part.label for part in again.committed] == [first.shard_id]
    assert (again.committed.shards, again.committed.documents) == (1, first.rows)


def test_a_finished_run_is_checked_and_reported(settings: CorpusSettings) -> None:
    run = opened(settings)
    commit_all(run, failed=1)
    report = close(run, Session())
    assert (report["summarized"], report["failed"], report["rows"]) == (7, 3, 10)
    assert report["error_types"] == {"EmptyDocument": 3}
    assert (report["output_tokens"], report["tokens_per_forward"]) == (12, 2.0)
    assert json.loads(run.folder.read("_run.json")) == report
    assert opened(settings).finished


def test_success_is_not_written_while_a_shard_is_missing(settings: CorpusSettings) -> None:
    run = opened(settings)
    commit_all(run)
    run.folder.delete(next(n for n in run.folder.names() if n.startswith("part-")))
    with pytest.raises(ClusterError, match=r"1 of 3 shards are not committed.*7 of 10 rows"):
        close(run, Session())
    assert not run.folder.exists("_SUCCESS")


def test_a_part_removed_by_hand_is_done_again(settings: CorpusSettings) -> None:
    run = opened(settings)
    commit_all(run)
    close(run, Session())
    lost = run.plan.shards[1]
    run.folder.delete(shard_part(lost.shard_id, lost.rows, 0).name)
    again = opened(settings)
    assert again.pending == [lost]
    assert not again.folder.exists("_SUCCESS")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 5}, "seed was 0, now 5"),
        ({"shard_rows": 5}, "shard_rows was 4, now 5"),
        ({"id_column": "text"}, "columns.id was 'doc_id', now 'text'"),
        ({"decoding": Decoding(steps=8)}, "decoding.steps was 4, now 8"),
    ],
)
def test_another_run_in_the_directory_is_refused_with_the_difference(
    settings: CorpusSettings, changes: dict[str, Any], difference: str
) -> None:
    opened(settings)
    with pytest.raises(RunConflict, match=difference):
        opened(settings, **changes)


def test_the_default_spelled_out_is_the_same_run(settings: CorpusSettings) -> None:
    opened(settings)
    opened(settings, decoding=Decoding(steps=4, max_tokens=16))


def test_added_input_is_refused_by_name(
    settings: CorpusSettings, write_corpus: WriteCorpus
) -> None:
    opened(settings)
    write_corpus(Path(settings.input) / "b.parquet", ["new"])
    with pytest.raises(RunConflict, match=r"input files added: b\.parquet"):
        opened(settings)


def test_a_directory_with_other_things_is_refused_and_untouched(settings: CorpusSettings) -> None:
    output = Path(settings.output)
    output.mkdir()
    (output / "thesis.docx").write_text("precious")
    with pytest.raises(RunConflict, match=r"not empty \(thesis\.docx\)"):
        opened(settings)
    assert [p.name for p in output.iterdir()] == ["thesis.docx"]


def test_leftovers_of_a_killed_start_do_not_stand_in_the_way(settings: CorpusSettings) -> None:
    output = Path(settings.output)
    output.mkdir()
    (output / ".tmp-0123").write_bytes(b"half a plan")
    assert opened(settings).folder.names() == [".lock", "files.parquet", "plan.parquet"]


def test_a_foreign_part_is_refused(settings: CorpusSettings) -> None:
    run = opened(settings)
    pq.write_table(pa.table({"a": [1]}), run.folder.path("part-00000009-00000000-r1-e0.parquet"))
    with pytest.raises(RunConflict, match="not a part of this run's plan"):
        opened(settings)


def test_two_drivers_at_once_are_refused(settings: CorpusSettings) -> None:
    with open_run(settings, Decoding()), pytest.raises(RunConflict, match="another raydiff"):
        opened(settings)


def test_output_inside_the_input_is_refused(settings: CorpusSettings) -> None:
    for output in (settings.input, f"{settings.input}/out"):
        with pytest.raises(InputError, match="lies inside the input"):
            opened(settings, output=output)


def test_an_output_that_is_a_file_is_refused(settings: CorpusSettings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file; expected a directory"):
        opened(settings, output=str(tmp_path / "file"))


def test_what_cannot_run_is_refused_before_the_directory_is_made(
    settings: CorpusSettings,
) -> None:
    with pytest.raises(DecodingError, match="max_tokens"):
        opened(settings, decoding=Decoding(max_tokens=10_000))
    with pytest.raises(ModelError, match="no-such-model"):
        opened(settings, model="no-such-model")
    with pytest.raises(InputError):
        opened(settings, text_column="absent")
    assert not Path(settings.output).exists()


def test_input_without_rows_is_a_run_that_is_done(
    settings: CorpusSettings, write_corpus: WriteCorpus, tmp_path: Path
) -> None:
    pq.write_table(
        pa.table({"doc_id": pa.array([], pa.string()), "text": pa.array([], pa.string())}),
        tmp_path / "none.parquet",
    )
    run = opened(settings, input=str(tmp_path / "none.parquet"))
    assert run.pending == []
    assert close(run, Session())["rows"] == 0


def test_repeated_ids_are_counted_once_at_the_start(
    settings: CorpusSettings, write_corpus: WriteCorpus, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "in" / "a.parquet", ["a", "b", "c"], ids=["x", "x", None])
    write_corpus(tmp_path / "in" / "b.parquet", ["a", "b", "c"], ids=["x", "y", None])
    assert opened(settings).plan.repeated_ids == 2
