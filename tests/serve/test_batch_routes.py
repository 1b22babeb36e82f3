"""Files and batches through the real `openai` client, over a store on disk and a job server that
is a list; keys see their own."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from starlette.requests import HTTPConnection

from raydiff.batches.store import BatchStore
from raydiff.config import BatchSettings
from raydiff.serve.access import Access, Caller, OpenAccess
from raydiff.serve.api import RouteGroup, TextApi
from raydiff.serve.batch_routes import BatchesOff, BatchModel, BatchRoutes
from raydiff.serve.file_routes import FileRoutes

from ..batches.service import MODEL, Answering, jsonl, line
from ..batches.service import Service as Batches
from ..corpus.conftest import make_toy_model
from .live import listening

MAX_FILE_BYTES = 20_000


class ByKey(OpenAccess):
    """The bearer token is the key's id; "limited" may use no model."""

    async def caller(self, connection: HTTPConnection) -> Caller:
        key_id = connection.headers["authorization"].removeprefix("Bearer ")
        return Caller(key_id=key_id, models=() if key_id == "limited" else ("*",))


class Bell:
    """Counts what the gateway's attendant is told."""

    rings = 0

    def nudge(self) -> None:
        self.rings += 1


class Endpoint:
    """The routes on a loopback socket."""

    def __init__(self, url: str, store: BatchStore, model: str, bell: Bell) -> None:
        self.url = url
        self.store = store
        self.model = model
        self.bell = bell

    def client(self, key: str = "ann") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def run(self, batch_id: str, key: str = "ann") -> None:
        """What the batch's job does."""
        batches = Batches(self.store.settings, self.model, key)
        batches.now_s = batches.state(batch_id).record.created_at
        batches.drive(batch_id, Answering(self.model))


def api(groups: list[RouteGroup], access: Access) -> TextApi:
    return TextApi({}, request_timeout_s=60, max_body_bytes=100_000, access=access, groups=groups)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_toy_model(tmp_path_factory.mktemp("models") / "toy", 66)


@pytest.fixture
def endpoint(tmp_path: Path, toy: str) -> Iterator[Endpoint]:
    settings = BatchSettings(
        location=str(tmp_path / "store"), shard_lines=4, max_file_bytes=MAX_FILE_BYTES
    )
    store, access, bell = BatchStore(settings), ByKey(), Bell()
    routes = BatchRoutes(
        store=store,
        access=access,
        attendant=bell,
        models={MODEL: BatchModel(checkpoint=toy, fingerprint="fp")},
        app_name="raydiff",
        max_body_bytes=100_000,
    )
    with listening(api([FileRoutes(store=store, access=access), routes], access).app()) as url:
        yield Endpoint(url, store, toy, bell)


def upload(client: openai.OpenAI, content: bytes) -> str:
    return client.files.create(file=("in.jsonl", io.BytesIO(content)), purpose="batch").id


def create(client: openai.OpenAI, file_id: str) -> str:
    return client.batches.create(
        input_file_id=file_id, endpoint="/v1/completions", completion_window="24h"
    ).id


def test_a_batch_from_its_upload_to_its_results(endpoint: Endpoint) -> None:
    client = endpoint.client()
    wrong = line(9, body={"model": MODEL, "prompt": "x", "best_of": 3})
    file_id = upload(client, jsonl([*(line(n) for n in range(6)), wrong]))
    batch = client.batches.create(
        input_file_id=file_id,
        endpoint="/v1/completions",
        completion_window="24h",
        metadata={"night": "first"},
    )
    assert (batch.status, batch.metadata, endpoint.bell.rings) == (
        "validating",
        {"night": "first"},
        1,
    )
    endpoint.run(batch.id)
    done = client.batches.retrieve(batch.id)
    assert done.status == "completed"
    assert done.request_counts is not None
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (7, 6, 1)
    assert done.usage is not None
    assert done.usage.output_tokens == 30
    assert done.output_file_id
    assert done.error_file_id
    output = client.files.content(done.output_file_id).text.splitlines()
    assert [json.loads(each)["custom_id"] for each in output] == [f"id-{n}" for n in range(6)]
    (refused,) = client.files.content(done.error_file_id).text.splitlines()
    assert json.loads(refused)["response"]["body"]["error"]["param"] == "best_of"
    made = client.files.retrieve(done.output_file_id)
    assert (made.purpose, made.filename) == ("batch_output", f"{batch.id}_output.jsonl")


def test_an_uploaded_file_comes_back_byte_for_byte_and_can_be_deleted(endpoint: Endpoint) -> None:
    client = endpoint.client()
    content = bytes(range(256)) * 40
    file_id = upload(client, content)
    record = client.files.retrieve(file_id)
    assert (record.bytes, record.filename, record.purpose) == (len(content), "in.jsonl", "batch")
    assert client.files.content(file_id).content == content
    assert client.files.delete(file_id).deleted
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(file_id)
    assert list(endpoint.store.folder.entries("content", recursive=True)) == []


def test_a_key_does_not_see_what_is_anothers(endpoint: Endpoint) -> None:
    ann, bob = endpoint.client("ann"), endpoint.client("bob")
    file_id = upload(ann, jsonl([line(0)]))
    batch_id = create(ann, file_id)
    endpoint.run(batch_id)
    output = ann.batches.retrieve(batch_id).output_file_id
    assert output
    for name in (file_id, output):
        for ask in (bob.files.retrieve, bob.files.content, bob.files.delete):
            with pytest.raises(openai.NotFoundError):
                ask(name)
    for ask_batch in (bob.batches.retrieve, bob.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            ask_batch(batch_id)
    with pytest.raises(openai.BadRequestError, match="not yours"):
        create(bob, file_id)
    assert (list(bob.files.list()), list(bob.batches.list())) == ([], [])


def test_a_model_that_the_key_may_not_use_does_not_exist(endpoint: Endpoint) -> None:
    client = endpoint.client("limited")
    batch_id = create(client, upload(client, jsonl([line(0)])))
    endpoint.run(batch_id, "limited")
    batch = client.batches.retrieve(batch_id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [(e.code, e.line) for e in batch.errors.data] == [("model_not_found", 1)]


def test_lists_are_paged_newest_first(endpoint: Endpoint) -> None:
    client = endpoint.client()
    files = [upload(client, jsonl([line(n)])) for n in range(5)]
    batches = [create(client, file_id) for file_id in files]
    assert [f.id for f in client.files.list(limit=2)] == sorted(files, reverse=True)
    assert [f.id for f in client.files.list(limit=2, order="asc")] == sorted(files)
    assert [b.id for b in client.batches.list(limit=2)] == sorted(batches, reverse=True)
    assert list(client.files.list(purpose="batch_output")) == []
    first = client.batches.list(limit=3)
    assert first.has_more
    with pytest.raises(openai.BadRequestError, match="limit"):
        client.files.list(limit=0)


def test_a_batch_can_be_cancelled_once(endpoint: Endpoint) -> None:
    client = endpoint.client()
    batch_id = create(client, upload(client, jsonl([line(0)])))
    assert client.batches.cancel(batch_id).status == "cancelling"
    assert client.batches.cancel(batch_id).status == "cancelling"
    endpoint.run(batch_id)
    ended = client.batches.retrieve(batch_id)
    assert (ended.status, ended.output_file_id) == ("cancelled", None)
    with pytest.raises(openai.ConflictError, match="it is cancelled"):
        client.batches.cancel(batch_id)


def test_a_file_above_the_limit_is_refused_and_leaves_nothing(endpoint: Endpoint) -> None:
    client = endpoint.client()
    with pytest.raises(openai.APIStatusError, match="at most") as refused:
        upload(client, b"x" * (MAX_FILE_BYTES + 1))
    assert refused.value.status_code == 413
    assert list(client.files.list()) == []
    assert list(endpoint.store.folder.entries("content", recursive=True)) == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "fine-tune"}, "purpose"),
        ({}, "purpose"),
        ({"purpose": "batch", "expires_after[seconds]": "5"}, "expires_after[seconds]"),
    ],
)
def test_a_wrong_upload_is_refused_by_name(
    endpoint: Endpoint, fields: dict[str, str], param: str
) -> None:
    answer = httpx.post(
        f"{endpoint.url}/v1/files",
        headers={"Authorization": "Bearer ann"},
        data=fields,
        files={"file": ("a", b"x")},
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert list(endpoint.store.folder.entries("content", recursive=True)) == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"completion_window": "1h"}, "completion_window"),
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"input_file_id": "file-absent"}, "input_file_id"),
        ({"input_file_id": "../../secret"}, "input_file_id"),
        ({"no_such_field": 1}, "no_such_field"),
        ({"metadata": {"k": "v" * 600}}, "metadata.k"),
    ],
)
def test_a_wrong_batch_is_refused_by_name(
    endpoint: Endpoint, body: dict[str, object], param: str
) -> None:
    sound = {
        "input_file_id": upload(endpoint.client(), jsonl([line(0)])),
        "endpoint": "/v1/completions",
        "completion_window": "24h",
    }
    answer = httpx.post(
        f"{endpoint.url}/v1/batches",
        headers={"Authorization": "Bearer ann"},
        json={**sound, **body},
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_what_is_off_says_which_setting_turns_it_on() -> None:
    access = ByKey()
    with listening(api([BatchesOff(access=access)], access).app()) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="ann", max_retries=0)
        for ask in (client.files.list, client.batches.list):
            with pytest.raises(openai.NotFoundError, match="--batches"):
                ask()
        with pytest.raises(openai.NotFoundError, match="--batches"):
            upload(client, b"x")
