"""A run directory as it stands, for those who look after it: no input or model is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raydiff.config import CorpusSettings, StorageSettings
from raydiff.corpus.accounting import settle_ledger
from raydiff.corpus.errors_files import remove_unnamed_errors
from raydiff.corpus.ledger import LEDGER_FOLDER, LedgerWriter
from raydiff.corpus.parts import ERRORS_FOLDER, Committed, settle_parts
from raydiff.corpus.planning import PLAN_NAME, Plan, load_plan
from raydiff.errors import RunConflict, UsageError
from raydiff.request import Decoding
from raydiff.storage import Folder, Hold, hold, open_folder

REPORT_NAME = "_run.json"
SUCCESS_NAME = "_SUCCESS"


@dataclass(frozen=True, kw_only=True)
class SavedRun:
    """A run's directory and its plan."""

    folder: Folder
    plan: Plan

    @classmethod
    def load(cls, location: str, storage: StorageSettings) -> SavedRun:
        """The run at a path or an address.

        Raises:
            RunConflict: there is no run of this version there.
            InputError: there is no store of that kind.
        """
        folder = open_folder(location, "run_dir", storage)
        if not folder.exists(PLAN_NAME):
            message = f"run_dir: {folder.uri} holds no raydiff run: it has no {PLAN_NAME}."
            raise RunConflict(message, "run_dir")
        return cls(folder=folder, plan=load_plan(folder))

    def report(self) -> dict[str, Any]:
        """`_run.json`; empty if there is none that can be read."""
        return read_report_file(self.folder)

    def settings(self, storage: StorageSettings) -> CorpusSettings:
        """What the run was started with; the directory is where it is now, the store's settings
        are those given, where any are.

        Raises:
            RunConflict: they are of another version.
        """
        saved = self.plan.settings
        try:
            settings = CorpusSettings(**saved)
        except (TypeError, ValueError) as error:
            message = f"run_dir: the settings saved in {self.folder.uri} cannot be used: {error}"
            raise RunConflict(message, "run_dir") from error
        given = storage if storage != StorageSettings() else settings.storage
        return settings.model_copy(update={"output": self.folder.uri, "storage": given})

    def decoding(self) -> Decoding:
        """How the run decodes, resolved for its model."""
        saved: dict[str, Any] = self.plan.decoding
        values: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
        return Decoding(**values)


@dataclass(frozen=True, kw_only=True)
class HeldRun:
    """A run that no driver has, put in order: one part for each committed shard, the ledger
    complete, no errors file too many."""

    folder: Folder
    plan: Plan
    held: Hold
    committed: Committed
    writer: LedgerWriter
    ledger: Any
    """A `pa.Table`, as `read_ledger` gives it."""

    @property
    def complete(self) -> bool:
        """Whether all shards are committed."""
        return not self.committed.pending


@contextmanager
def hold_run(run: SavedRun) -> Iterator[HeldRun]:
    """Take the place of the run's driver until the end of the block.

    Raises:
        RunConflict: a driver has it.
    """
    folder = run.folder
    with hold(folder) as held:
        for under in (ERRORS_FOLDER, LEDGER_FOLDER):
            folder.make(under)
            folder.remove_leftovers(under)
        committed = settle_parts(folder, run.plan)
        writer = LedgerWriter(folder)
        ledger = settle_ledger(folder, writer, committed)
        remove_unnamed_errors(folder, committed)
        yield HeldRun(
            folder=folder,
            plan=run.plan,
            held=held,
            committed=committed,
            writer=writer,
            ledger=ledger,
        )


def read_report_file(folder: Folder) -> dict[str, Any]:
    """`_run.json`; empty if there is none that can be read."""
    try:
        report = json.loads(folder.read(REPORT_NAME))
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def write_report_file(folder: Folder, report: dict[str, Any]) -> None:
    """Replace `_run.json`."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    folder.put(REPORT_NAME, text.encode() + b"\n")


def require_target(target_mb: int) -> int:
    """The size in bytes.

    Raises:
        UsageError: it is not positive.
    """
    if target_mb < 1:
        raise UsageError(
            f"target_mb: expected an integer of at least 1, got {target_mb}.", "target_mb"
        )
    return target_mb * 2**20
