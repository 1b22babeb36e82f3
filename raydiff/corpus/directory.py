"""A run directory opened for writing: new or continued, held, its committed shards known.

plan.parquet             the shards, and the fingerprint of the run they belong to
files.parquet            the input files that the plan was made of
part-*.parquet           one per committed shard, or per range of them once they were compacted
errors/*.parquet         failed documents of the shards that have some
ledger/*.parquet         tokens, times, types of errors and checksums of the parts
attempts/                marks of shards in hand; only while the run is under way
_lease.json              in object stores: who drives the run
_run.json                the report; _report.md for people, with the plot _throughput.svg
_SUCCESS                 written last
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from raydiff.config import CorpusSettings
from raydiff.corpus.appending import reconcile
from raydiff.corpus.attempts import ATTEMPTS_FOLDER
from raydiff.corpus.choosable import require_choosable
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.fingerprint import (
    asked_columns,
    make_fingerprint,
    model_digest,
    plain,
    require_same,
)
from raydiff.corpus.ids import count_repeated_ids
from raydiff.corpus.inputs import (
    Columns,
    InputLayout,
    Inputs,
    open_inputs,
    reopen_inputs,
    require_unmatched,
)
from raydiff.corpus.ledger import LEDGER_FOLDER, LedgerWriter, read_ledger, shard_table
from raydiff.corpus.markdown import write_markdown
from raydiff.corpus.parts import ERRORS_FOLDER, Committed, settle_parts
from raydiff.corpus.planning import (
    PLAN_NAME,
    Plan,
    PlanBuilder,
    is_half_a_plan,
    load_plan,
    save_plan,
)
from raydiff.corpus.prompting import corpus_prompts
from raydiff.corpus.runs import SUCCESS_NAME, read_report_file, write_report_file
from raydiff.corpus.shards import Shards
from raydiff.errors import RunConflict
from raydiff.families import load_spec
from raydiff.request import Decoding
from raydiff.storage import (
    Folder,
    Hold,
    hold,
    local_path,
    open_folder,
    require_outside,
)
from raydiff.storage.address import scheme_of
from raydiff.storage.folder import is_own
from raydiff.text import PromptStyle, Tokenizer, decoding_for, prompt_style


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
    committed: Committed
    """Parts that were there when the directory was opened."""
    ledger: LedgerWriter
    """Takes the report of each shard that is committed from now on."""

    @property
    def pending(self) -> Shards:
        """Shards that were still to be done when the directory was opened, in input order."""
        return self.committed.pending

    @property
    def finished(self) -> bool:
        """Whether an earlier start of the run got to its end."""
        return not self.pending and self.folder.exists(SUCCESS_NAME)

    def shard_table(self) -> pa.Table:
        """What the ledger has of each shard, over all starts of the run (`ledger.shard_table`)."""
        self.ledger.flush()
        return shard_table(read_ledger(self.folder))

    def write_report(self, report: dict[str, Any]) -> None:
        """Replace `_run.json`, and `_report.md` unless the run is still under way."""
        write_report_file(self.folder, report)
        if report["status"] != "running":
            write_markdown(self.folder, report)

    def saved_report(self) -> dict[str, Any]:
        """The report of an earlier start; empty if there is none that can be read."""
        return read_report_file(self.folder)


@contextmanager
def open_run(settings: CorpusSettings, decoding: Decoding) -> Iterator[RunDirectory]:
    """Check everything that can be checked before work starts, then plan or reload the plan.

    A rerun reads the saved plan, one listing of the input and one of the output.

    Raises:
        InputError: a path, a file or a column of the input cannot be used.
        RunConflict: the output directory holds something else, or is in use.
        DecodingError: the model cannot decode that way.
        UsageError: the model cannot be asked that way, or there is no room for a text.
        ModelError: there is no such model.
        StorageError: a store refused or is out of reach.
    """
    asked = decoding_for(settings.model, settings.task, decoding)
    resolved = load_spec(settings.model).resolve(replace(asked, seed=None))
    if settings.task.kind == "label":
        require_choosable(settings, resolved)
    style = PromptStyle()  # of requests: each says by itself how the model is asked
    if settings.task.kind != "request":
        style = prompt_style(
            settings.model, settings.task, settings.instruction, settings.pass_columns
        )
        corpus_prompts(settings, style, resolved, Tokenizer.load(settings.model))
    fingerprint = partial(make_fingerprint, settings, resolved, style, model_digest(settings.model))
    folder = open_folder(settings.output, "output", settings.storage)
    source = open_folder(settings.input, "input", settings.input_storage or settings.storage)
    require_outside(folder, source)
    require_unmatched(folder, source)
    new = None
    if not folder.exists(PLAN_NAME):
        _require_empty(folder)  # before anything is read or written
        new = _new_plan(settings, resolved, fingerprint)
    folder.make()
    with hold(folder) as held:
        if new is None or folder.exists(PLAN_NAME):
            plan, inputs = _continued(folder, settings, fingerprint)
        else:
            plan, inputs = new
            _require_empty(folder)
            save_plan(folder, plan)
        _prepare(folder)
        run = RunDirectory(
            settings=settings,
            decoding=resolved,
            style=style,
            inputs=inputs,
            folder=folder,
            held=held,
            plan=plan,
            committed=settle_parts(folder, plan),
            ledger=LedgerWriter(folder),
        )
        if run.pending:
            folder.delete(SUCCESS_NAME)
        try:
            yield run
        finally:
            run.ledger.try_to_flush()


def _new_plan(
    settings: CorpusSettings, decoding: Decoding, fingerprint: Any
) -> tuple[Plan, Inputs]:
    """Read the whole input's structure, before anything is written."""
    inputs = open_inputs(settings)
    builder = PlanBuilder().add_all(plan_items(inputs, inputs.listing, settings.shard_rows))
    files = builder.files()
    plan = Plan(
        shards=builder.shards(files),
        files=files,
        fingerprint=fingerprint(inputs.columns),
        repeated_ids=count_repeated_ids(inputs, files),
        layout=inputs.layout.to_json(),
        settings=_lasting(settings),
        decoding={name: plain(value) for name, value in asdict(decoding).items()},
    )
    return plan, inputs


def _lasting(settings: CorpusSettings) -> dict[str, Any]:
    """Settings that mean the same in whatever directory the run is resumed from."""
    saved = settings.model_dump(mode="json")
    if scheme_of(settings.input) in ("", "file://"):
        saved["input"] = str(local_path(settings.input, "input"))
    # "summarizer" is a model's name, whatever lies in the working directory.
    if "/" in settings.model and os.path.exists(settings.model):
        saved["model"] = os.path.abspath(settings.model)
    return saved


def _continued(folder: Folder, settings: CorpusSettings, fingerprint: Any) -> tuple[Plan, Inputs]:
    plan = load_plan(folder)
    layout = InputLayout.from_json(plan.layout)
    columns: Columns = asked_columns(settings, layout.columns)
    require_same(plan.fingerprint, fingerprint(columns), folder.uri)
    inputs = reopen_inputs(settings, layout)
    return reconcile(folder, plan, inputs, settings), inputs


def _prepare(folder: Folder) -> None:
    folder.remove(ATTEMPTS_FOLDER)
    for under in (ERRORS_FOLDER, ATTEMPTS_FOLDER, LEDGER_FOLDER):
        folder.make(under)
    for under in (ERRORS_FOLDER, LEDGER_FOLDER):
        folder.remove_leftovers(under)


def _require_empty(folder: Folder) -> None:
    names = (entry.name for entry in folder.entries(recursive=True))
    name = next((n for n in names if not (is_own(n) or is_half_a_plan(folder, n))), None)
    if name is not None:
        raise RunConflict(
            f"output: {folder.uri} is not empty ({name}) and holds no raydiff run. "
            "Choose an empty or a new directory.",
            "output",
        )
