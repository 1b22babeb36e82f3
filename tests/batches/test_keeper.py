"""Every open batch has exactly one job, whatever becomes of jobs, gateways and heads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from raydiff.batches.keeper import LONGEST_PAUSE_S, Keeper, job_name, pause_s
from raydiff.batches.records import Ended
from raydiff.config import BatchSettings

from .service import FakeJobs, Service, line


def keeper(service: Service, jobs: FakeJobs) -> Keeper:
    return Keeper(service.store, jobs, now=lambda: service.now_s)


def test_a_new_batch_gets_one_job_though_many_gateways_look(service: Service) -> None:
    batch_ids = [service.create([line(0)]) for _ in range(3)]
    jobs = FakeJobs()
    keepers = [keeper(service, jobs) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            list(pool.map(lambda each: each.look(), keepers))
    assert sorted(jobs.submitted) == sorted(job_name(batch_id, 1) for batch_id in batch_ids)


def test_a_head_that_forgot_its_jobs_gets_them_again(service: Service) -> None:
    batch_id = service.create([line(0)])
    keeper(service, FakeJobs()).look()
    new_head = FakeJobs()
    for each in (keeper(service, new_head), keeper(service, new_head)):
        each.look()
    assert new_head.submitted == [job_name(batch_id, 1)]


def test_a_job_that_failed_is_followed_by_another_after_a_pause(service: Service) -> None:
    batch_id = service.create([line(0)])
    jobs = FakeJobs()
    keeper(service, jobs).look()
    jobs.jobs[job_name(batch_id, 1)] = "over"
    keeper(service, jobs).look()
    assert len(jobs.submitted) == 1
    service.now_s += pause_s(1)
    for each in (keeper(service, jobs), keeper(service, jobs)):
        each.look()
    assert jobs.submitted == [job_name(batch_id, 1), job_name(batch_id, 2)]
    assert pause_s(1000) == LONGEST_PAUSE_S


def test_a_job_server_that_is_away_loses_no_batch(service: Service) -> None:
    batch_id = service.create([line(0)])
    jobs = FakeJobs()
    jobs.down = True
    keeper(service, jobs).look()
    assert jobs.submitted == []
    jobs.down = False
    keeper(service, jobs).look()
    assert jobs.submitted == [job_name(batch_id, 1)]


def test_an_ended_batch_is_let_go(service: Service) -> None:
    batch_id = service.create([line(0)])
    jobs = FakeJobs()
    keeper(service, jobs).look()
    service.store.end(batch_id, Ended(at=1, status="completed"))
    # its job died before it took the mark away
    service.store.folder.put(f"open/{batch_id}", b"ann")
    jobs.jobs[job_name(batch_id, 1)] = "over"
    service.now_s += 1000
    keeper(service, jobs).look()
    assert (service.store.open_ids(), len(jobs.submitted)) == ([], 1)


def test_a_batch_that_never_got_its_record_is_let_go_in_time(service: Service) -> None:
    batch_id = service.create([line(0)])
    service.store.folder.remove("owners")
    jobs = FakeJobs()
    keeper(service, jobs).look()
    assert service.store.open_ids() == [batch_id]
    service.now_s += 7200
    keeper(service, jobs).look()
    assert (service.store.open_ids(), jobs.submitted) == ([], [])


def test_keys_take_turns_where_more_batches_wait_than_may_run(
    service: Service, toy: str, settings: BatchSettings
) -> None:
    """However many one key has queued, another's first is next."""
    busy = Service(settings.model_copy(update={"max_jobs": 2}), toy)
    other = Service(busy.store.settings, toy, "bob")
    queued = []
    for _ in range(4):
        busy.now_s += 1
        queued.append(busy.create([line(0)]))
    other.now_s = busy.now_s + 1
    late = other.create([line(0)])
    jobs = FakeJobs()
    keeper(busy, jobs).look()
    assert jobs.submitted == [job_name(queued[0], 1), job_name(late, 1)]
    jobs.jobs[job_name(queued[0], 1)] = "over"
    busy.store.end(queued[0], Ended(at=1, status="completed"))
    keeper(busy, jobs).look()
    assert jobs.submitted[2:] == [job_name(queued[1], 1)]
