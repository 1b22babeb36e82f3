"""Batches in an object store: the same books, kept by conditional writes."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raydiff.batches.keeper import Keeper, job_name
from raydiff.config import BatchSettings, StorageSettings

from ..batches.service import Answering, FakeJobs, Killed, Service, line
from ..corpus.conftest import make_toy_model
from .proxy import FaultProxy


@pytest.fixture
def service(proxy: FaultProxy, bucket: str, credentials: None, tmp_path: Path) -> Service:
    storage = StorageSettings(endpoint_url=proxy.url, region="us-east-1", lease_s=1.0)
    settings = BatchSettings(
        location=f"s3://{bucket}/batches-{uuid.uuid4().hex}", storage=storage, shard_lines=4
    )
    return Service(settings, make_toy_model(tmp_path / "toy", 66))


def test_a_batch_in_a_store_survives_its_job_and_has_each_line_once(service: Service) -> None:
    batch_id = service.create([line(number) for number in range(11)])
    jobs = FakeJobs()
    keepers = [Keeper(service.store, jobs, now=lambda: service.now_s) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda keeper: keeper.look(), keepers))
    assert jobs.submitted == [job_name(batch_id, 1)]
    with pytest.raises(Killed):
        service.drive(batch_id, Answering(service.model, die_after_shards=1))
    assert (service.state(batch_id).status, service.state(batch_id).completed) == ("in_progress", 4)
    state = service.drive(batch_id, Answering(service.model))
    output, errors = service.results(batch_id)
    assert (state.status, len(output), errors) == ("completed", 11, {})
    assert service.store.open_ids() == []
    assert service.store.ids("ann") == [batch_id]
    assert len(service.store.files.ids("ann")) == 2
