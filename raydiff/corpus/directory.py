"""A run directory opened for writing: new or continued, locked, its committed shards known.

plan.parquet             the shards, and the fingerprint of the run they belong to
part-*.parquet           one per committed shard: the summaries
errors/*.parquet         failed documents of the shards that have some
attempts/                marks of shards in hand; only while the run is under way
_run.json                the report
_SUCCESS                 written last
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from raydiff.config import CorpusSettings
from raydiff.corpus.attempts import ATTEMPTS_FOLDER
from raydiff.corpus.commit import ERRORS_FOLDER, Part, settle_parts
from raydiff.corpus.cutting import cut_into_shards
from raydiff.corpus.fingerprint import make_fingerprint, model_digest, require_same
from raydiff.corpus.ids import count_repeated_ids
from raydiff.corpus.inputs import Inputs, read_inputs
from raydiff.corpus.plan import PLAN_NAME, Plan, Shard, load_plan, save_plan
from raydiff.corpus.storage import Folder, Hold, hold, open_folder, require_outside
from raydiff.corpus.storage.folder import is_own
from raydiff.errors import RunConflict
from raydiff.families import load_spec
from raydiff.request import Decoding
from raydiff.text import PromptStyle, decoding_for, prompt_style

REPORT_NAME = "_run.json"
SUCCESS_NAME = "_SUCCESS"


@dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """What is to be done, what is done, and where."""

    settings: CorpusSettings
    decoding: Decoding
    """Resolved for the model, without a seed."""
    style: PromptStyle
    """How the model is asked; its usual instruction counts by value."""
    inputs: Inputs
    folder: Folder
    held: Hold
    """To be checked before the end of the run is written."""
    plan: Plan
    committed: dict[str, Part]
    """Parts that were there when the directory was opened, by shard id."""

    @property
    def pending(self) -> list[Shard]:
        """Shards still to be summarised, in input order."""
        return [shard for shard in self.plan.shards if shard.shard_id not in self.committed]

    @property
    def finished(self) -> bool:
        """Whether an earlier start of the run got to its end."""
        return not self.pending and self.folder.exists(SUCCESS_NAME)

    def write_report(self, report: dict[str, Any]) -> None:
        """Replace `_run.json`."""
        text = json.dumps(report, indent=1, ensure_ascii=False)
        self.folder.put(REPORT_NAME, text.encode() + b"\n")

    def saved_report(self) -> dict[str, Any]:
        """The report of an earlier start; empty if there is none that can be read."""
        try:
            report = json.loads(self.folder.read(REPORT_NAME))
        except (OSError, ValueError):
            return {}
        return report if isinstance(report, dict) else {}


@contextmanager
def open_run(settings: CorpusSettings, decoding: Decoding) -> Iterator[RunDirectory]:
    """Check everything that can be checked before work starts, then plan or reload the plan.

    Raises:
        InputError: a path, a file or a column of the input cannot be used.
        RunConflict: the output directory holds something else, or is in use.
        DecodingError: the model cannot decode that way.
        UsageError: the model cannot be asked that way.
        ModelError: there is no such model.
    """
    asked = decoding_for(settings.model, settings.task, decoding)
    resolved = load_spec(settings.model).resolve(replace(asked, seed=None))
    style = prompt_style(settings.model, settings.task, settings.instruction, settings.pass_columns)
    inputs = read_inputs(
        settings.input,
        text=settings.text_column,
        id_column=settings.id_column,
        passed=settings.pass_columns,
    )
    fingerprint = make_fingerprint(settings, inputs, resolved, style, model_digest(settings.model))
    folder = open_folder(settings.output, "output", settings.storage)
    source = open_folder(settings.input, "input", settings.input_storage or settings.storage)
    require_outside(folder, source)
    folder.make()
    with hold(folder) as held:
        plan = _plan(folder, settings, inputs, fingerprint)
        folder.remove(ATTEMPTS_FOLDER)
        for under in (ERRORS_FOLDER, ATTEMPTS_FOLDER):
            folder.make(under)
        for under in ("", ERRORS_FOLDER):
            folder.remove_leftovers(under)
        run = RunDirectory(
            settings=settings,
            decoding=resolved,
            style=style,
            inputs=inputs,
            folder=folder,
            held=held,
            plan=plan,
            committed=_committed(folder, plan),
        )
        if run.pending:
            folder.delete(SUCCESS_NAME)
        yield run


def _plan(
    folder: Folder, settings: CorpusSettings, inputs: Inputs, fingerprint: dict[str, Any]
) -> Plan:
    if folder.exists(PLAN_NAME):
        plan = load_plan(folder)
        require_same(plan.fingerprint, fingerprint, folder.uri)
        return plan
    _require_empty(folder)
    plan = Plan(
        shards=tuple(cut_into_shards(inputs.files, settings.shard_rows)),
        fingerprint=fingerprint,
        repeated_ids=count_repeated_ids(inputs),
    )
    save_plan(folder, plan)
    return plan


def _require_empty(folder: Folder) -> None:
    names = (entry.name for entry in folder.entries(recursive=True))
    name = next((n for n in names if not is_own(n)), None)
    if name is not None:
        raise RunConflict(
            f"output: {folder.uri} is not empty ({name}) and holds no raydiff run. "
            "Choose an empty or a new directory.",
            "output",
        )


def _committed(folder: Folder, plan: Plan) -> dict[str, Part]:
    planned = {shard.shard_id: shard for shard in plan.shards}
    committed = settle_parts(folder)
    for part in committed.values():
        shard = planned.get(part.shard_id)
        if shard is None or part.rows + part.errors != shard.rows:
            message = f"output: {folder.path(part.name)} is not a part of this run's plan."
            raise RunConflict(message, "output")
    return committed
