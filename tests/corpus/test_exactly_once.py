"""Killed before any change it makes to its directory, a run goes on and has every row once."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from raydiff.config import CorpusSettings
from raydiff.corpus.closing import close
from raydiff.corpus.compacting import compact
from raydiff.corpus.directory import open_run
from raydiff.corpus.planning import load_plan
from raydiff.corpus.report import Session
from raydiff.corpus.runs import SavedRun
from raydiff.corpus.verifying import verify
from raydiff.request import Decoding

from .committing import Killed, WatchedFolder, commit, kill_everywhere
from .conftest import WriteCorpus, read_outputs

MIB = 2**20


class Life:
    """Two nights of a run: a first start, then one with a new file, each compacted at its end."""

    def __init__(self, root: Path, model: str, write_corpus: WriteCorpus) -> None:
        self.root = root
        self._write = write_corpus
        self._write(root / "in" / "b.parquet", [f"b{i}" for i in range(7)])
        self.settings = CorpusSettings(
            input=str(root / "in"),
            output=str(root / "out"),
            model=model,
            shard_rows=3,
            append=True,
        )

    def live(self, folder: WatchedFolder, *, twice: bool = False) -> None:
        """From wherever it stands to its end; `twice` commits each shard again, as a worker does
        that was thought dead."""
        self._night(folder, twice=twice)
        new = self.root / "in" / "a.parquet"
        if not new.exists():
            self._write(new, [f"a{i}" for i in range(4)])
        self._night(folder, twice=twice)

    def _night(self, folder: WatchedFolder, *, twice: bool) -> None:
        with open_run(self.settings, Decoding()) as run:
            for shard in run.pending:
                report = commit(folder, shard, failed=shard.position % 2)
                run.ledger.add(report)
                if twice:
                    commit(folder, shard, failed=0)
            if not run.finished:
                close(run, Session())
        compact(SavedRun(folder=folder, plan=load_plan(folder)), MIB)

    @property
    def expected(self) -> set[tuple[str, int]]:
        places = {("b.parquet", row) for row in range(7)}
        if (self.root / "in" / "a.parquet").exists():
            places |= {("a.parquet", row) for row in range(4)}
        return places


def places(output: Path) -> list[tuple[str, int]]:
    good, bad = read_outputs(output)
    return [(row["source_file"], row["source_row"]) for row in good + bad]


@pytest.mark.parametrize("twice", [False, True], ids=["once", "each shard committed twice"])
def test_a_run_killed_before_any_change_goes_on_and_has_every_row_once(
    twice: bool,
    tmp_path: Path,
    toy_model: str,
    write_corpus: WriteCorpus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life(tmp_path, toy_model, write_corpus)
    current: list[WatchedFolder] = []
    monkeypatch.setattr(
        "raydiff.corpus.directory.open_folder",
        lambda location, param, storage: (
            current[-1] if param == "output" else WatchedFolder(location)
        ),
    )

    def begin() -> WatchedFolder:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        (tmp_path / "in" / "a.parquet").unlink(missing_ok=True)
        current.append(WatchedFolder(tmp_path / "out"))
        return current[-1]

    deaths = 0
    for folder in kill_everywhere(begin, lambda folder: life.live(folder, twice=twice)):
        deaths += 1
        if folder.exists("_SUCCESS"):
            plan = load_plan(folder)
            found = places(tmp_path / "out")
            assert len(found) == len(set(found)) == plan.rows, "a reader saw rows twice"
        life.live(folder, twice=twice)
        found = places(tmp_path / "out")
        assert len(found) == len(set(found)), f"rows are there twice after death {deaths}"
        assert set(found) == life.expected
        assert verify(SavedRun(folder=folder, plan=load_plan(folder))).faults == ()
    assert deaths > 40


def test_killed_again_and_again_at_random_it_ends_all_the_same(
    tmp_path: Path,
    toy_model: str,
    write_corpus: WriteCorpus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    life = Life(tmp_path, toy_model, write_corpus)
    folder = WatchedFolder(tmp_path / "out")

    def opened(location: str, param: str, storage: Any) -> WatchedFolder:
        return folder if param == "output" else WatchedFolder(location)

    monkeypatch.setattr("raydiff.corpus.directory.open_folder", opened)
    for _ in range(60):
        folder.changes, folder.kill_at = 0, chance.randrange(25)
        with contextlib.suppress(Killed):
            life.live(folder, twice=chance.random() < 0.3)
        folder.kill_at = None
        if folder.exists("_SUCCESS"):
            found = places(tmp_path / "out")
            assert len(found) == len(set(found))
    life.live(folder)
    found = places(tmp_path / "out")
    assert len(found) == len(set(found))
    assert set(found) == life.expected
    assert verify(SavedRun(folder=folder, plan=load_plan(folder))).faults == ()
