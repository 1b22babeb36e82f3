"""A batch's job: one input line is one line of output or errors, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raydiff.batches.records import WINDOW_S
from raydiff.config import BatchSettings, CorpusSettings
from raydiff.errors import RunConflict
from raydiff.storage import hold

from ..corpus.fakes import POISON
from .service import MODEL, Answering, Killed, Service, line, run_files


def test_every_line_is_answered_as_the_endpoint_would(service: Service, toy: str) -> None:
    """Each with its own prompt, seed and number of answers."""
    several = {"model": MODEL, "prompt": ["a b", "c d"], "n": 2, "seed": 5, "max_tokens": 3}
    batch_id = service.create([line(0), line(1, body=several), b"", line(2)])
    state = service.drive(batch_id, Answering(toy))
    output, errors = service.results(batch_id)
    assert (state.status, list(output), errors) == ("completed", ["id-0", "id-1", "id-2"], {})
    assert state.body()["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    first = output["id-0"]
    assert set(first) == {"id", "custom_id", "response", "error"}
    assert first["error"] is None
    assert first["response"]["status_code"] == 200
    body = first["response"]["body"]
    assert body["object"] == "text_completion"
    assert (body["model"], body["system_fingerprint"]) == (MODEL, "fp")
    assert body["choices"][0]["text"] == "text 6 1"  # first word, length and seed of the line
    choices = output["id-1"]["response"]["body"]["choices"]
    assert [c["text"].split()[0] for c in choices] == ["a", "a", "c", "c"]
    assert len({c["text"] for c in choices}) == 4  # no two rows share a seed and a prompt
    ids = [each["response"]["body"]["id"] for each in output.values()]
    assert len(set(ids)) == 3


def test_a_line_that_the_endpoint_refuses_is_a_line_of_the_error_file(
    service: Service, toy: str
) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "id-1": {"prompt": "x" * 500},
        "id-2": {"prompt": "x", "no_such_field": 1},
        "id-3": {"prompt": "x", "temperature": -1.0},
        "id-4": {"prompt": "x", "stream": True},
        "id-5": {},
    }
    lines = [line(0)]
    lines += [line(int(name[3:]), body={"model": MODEL, **body}) for name, body in wrong.items()]
    batch_id = service.create([*lines, line(6, body={"model": MODEL, "prompt": POISON})])
    state = service.drive(batch_id, Answering(toy))
    output, errors = service.results(batch_id)
    assert (list(output), list(errors)) == (["id-0"], [*wrong, "id-6"])
    assert state.body()["request_counts"] == {"total": 7, "completed": 1, "failed": 6}
    for name in wrong:
        assert errors[name]["response"]["status_code"] == 400
        assert errors[name]["response"]["body"]["error"]["type"] == "invalid_request_error"
    params = [errors[n]["response"]["body"]["error"]["param"] for n in list(wrong)[1:]]
    assert params == ["no_such_field", "temperature", "stream", "prompt"]
    code = errors["id-1"]["response"]["body"]["error"]["code"]
    assert code == "context_length_exceeded"
    assert errors["id-6"]["response"]["status_code"] == 500  # the model failed on it thrice


def test_an_input_that_is_no_batch_fails_before_anything_runs(service: Service, toy: str) -> None:
    execute = Answering(toy)
    batch_id = service.create([line(0), b"{broken", line(0), line(1, url="/v1/embeddings")])
    state = service.drive(batch_id, execute)
    assert (state.status, execute.runs) == ("failed", [])
    errors = state.body()["errors"]["data"]
    found = [(error["line"], error["code"]) for error in errors]
    assert found == [(2, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "invalid_url")]
    assert service.store.open_ids() == []


def test_a_batch_whose_file_was_deleted_fails(service: Service, toy: str) -> None:
    batch_id = service.create([line(0)])
    service.store.files.delete("ann", service.state(batch_id).record.input_file_id)
    state = service.drive(batch_id, Answering(toy))
    assert state.body()["errors"]["data"][0]["code"] == "file_not_found"


def test_a_job_that_dies_is_continued_where_it_was(
    service: Service, toy: str, settings: BatchSettings
) -> None:
    """What is committed is not generated again, and every line is there once."""
    batch_id = service.create([line(number) for number in range(20)])
    with pytest.raises(Killed):
        service.drive(batch_id, Answering(toy, die_after_shards=2))
    state = service.state(batch_id)
    assert (state.status, state.completed) == ("in_progress", 8)
    committed = run_files(Path(settings.location), batch_id)
    second = Answering(toy)
    state = service.drive(batch_id, second)
    output, errors = service.results(batch_id)
    assert (state.status, len(output), errors) == ("completed", 20, {})
    assert sum(len(call) for call in second.generator.calls) == 12
    assert committed.items() <= run_files(Path(settings.location), batch_id).items()


def test_lines_without_a_seed_repeat_their_text_in_a_retry(service: Service, toy: str) -> None:
    lines = [line(n, body={"model": MODEL, "prompt": "same"}) for n in range(3)]
    execute = Answering(toy)
    service.drive(service.create(lines), execute)
    (settings,) = execute.runs
    texts = [r.decoding.seed for call in execute.generator.calls for r in call]
    assert len(set(texts)) == 3
    service.store.folder.remove("batches")
    batch_id = service.create(lines)
    again = Answering(toy)
    with pytest.raises(Killed):
        service.drive(batch_id, Answering(toy, die_after_shards=0))
    service.drive(batch_id, again)
    assert again.runs[0].seed != settings.seed  # as random as online from batch to batch


def test_a_cancelled_batch_keeps_what_was_done_and_names_the_rest(
    service: Service, toy: str
) -> None:
    batch_id = service.create([line(number) for number in range(12)])
    with pytest.raises(Killed):
        service.drive(batch_id, Answering(toy, die_after_shards=1))
    service.store.cancel(batch_id, int(service.now_s))
    assert service.state(batch_id).status == "cancelling"
    execute = Answering(toy)
    state = service.drive(batch_id, execute)
    output, errors = service.results(batch_id)
    assert (state.status, execute.runs, len(output), len(errors)) == ("cancelled", [], 4, 8)
    assert {e["error"]["code"] for e in errors.values()} == {"batch_cancelled"}
    assert state.body()["cancelled_at"] is not None


def test_a_batch_that_is_cancelled_while_its_lines_run_stops_soon(
    service: Service, toy: str
) -> None:
    batch_id = service.create([line(number) for number in range(400)])

    class Slow(Answering):
        def __call__(self, settings: CorpusSettings, app_name: str) -> None:
            service.store.cancel(batch_id, int(service.now_s))
            self.generator._delay_s = 0.2
            super().__call__(settings, app_name)

    state = service.drive(batch_id, Slow(toy))
    output, errors = service.results(batch_id)
    assert state.status == "cancelled"
    assert len(output) + len(errors) == 400
    assert len(errors) > 0


def test_a_batch_expires_after_a_day(service: Service, toy: str) -> None:
    batch_id = service.create([line(0), line(1)])
    service.now_s += WINDOW_S
    execute = Answering(toy)
    state = service.drive(batch_id, execute)
    output, errors = service.results(batch_id)
    assert (state.status, output, len(errors)) == ("expired", {}, 2)
    assert {e["error"]["code"] for e in errors.values()} == {"batch_expired"}


def test_two_jobs_never_work_on_one_batch(service: Service, toy: str) -> None:
    batch_id = service.create([line(0)])
    folder = service.store.run_folder(batch_id)
    folder.make()
    with hold(folder), pytest.raises(RunConflict):
        service.drive(batch_id, Answering(toy))
    assert service.state(batch_id).ended is None


def test_a_job_of_an_ended_batch_changes_nothing(service: Service, toy: str) -> None:
    batch_id = service.create([line(0)])
    before = service.drive(batch_id, Answering(toy))
    execute = Answering(toy)
    assert service.drive(batch_id, execute) == before
    assert execute.runs == []
