"""The driver on a real Ray cluster, against a Serve deployment in the real replica's place."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import serve

from raydiff.config import APP_NAME, CorpusSettings, deployment_name
from raydiff.corpus.directory import open_run
from raydiff.corpus.plan import position_of
from raydiff.corpus.report import Session
from raydiff.corpus.run import execute, windows
from raydiff.errors import ClusterError
from raydiff.metrics import DOCUMENTS, SHARDS
from raydiff.request import Decoding

from ..processes import descendants
from .commands import command
from .conftest import WriteCorpus, read_outputs
from .fakes import CRASH, POISON, FakeReplica


@pytest.fixture(scope="module")
def replica_log(
    ray_cluster: Any, toy_model: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The fake app; the log has a line per document that its replica was asked for."""
    log = tmp_path_factory.mktemp("replica") / "asked.log"
    log.touch()
    deployment = serve.deployment(
        name=deployment_name("toy"), num_replicas=1, max_ongoing_requests=1000
    )(FakeReplica)
    serve.run(deployment.bind(toy_model, str(log)), name=APP_NAME, route_prefix=None)
    yield log
    serve.shutdown()


@pytest.fixture
def asked(replica_log: Path) -> Callable[[], Counter[str]]:
    """Requests since the test began, by request id."""
    replica_log.write_text("")
    return lambda: Counter(replica_log.read_text().split())


RunCorpus = Callable[..., dict[str, Any]]


@pytest.fixture
def run_corpus(toy_model: str, asked: object) -> RunCorpus:
    def run(source: Path, output: Path, **options: Any) -> dict[str, Any]:
        defaults: dict[str, Any] = {"model": toy_model, "shard_rows": 10, "call_timeout_s": 60}
        settings = CorpusSettings(input=str(source), output=str(output), **{**defaults, **options})
        with open_run(settings, Decoding(steps=2)) as opened:
            return execute(opened, lambda session: None)

    return run


def part_times(output: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in output.glob("part-*.parquet")}


def test_every_document_comes_out_once(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus
) -> None:
    for name in "ab":
        write_corpus(tmp_path / "in" / f"{name}.parquet", [f"{name} text {i}" for i in range(33)])
    report = run_corpus(tmp_path / "in", tmp_path / "out")
    good, bad = read_outputs(tmp_path / "out")
    assert [row["doc_id"] for row in good] == [f"{n}-{i}" for n in "ab" for i in range(33)]
    assert bad == []
    assert (report["status"], report["rows"], report["summarized"]) == ("done", 66, 66)
    assert json.loads((tmp_path / "out" / "_run.json").read_text()) == report
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_a_resumed_run_does_not_read_committed_shards(
    tmp_path: Path,
    write_corpus: WriteCorpus,
    run_corpus: RunCorpus,
    asked: Callable[[], Counter[str]],
) -> None:
    """Their input bytes are spoiled, so that reading them could not go unnoticed."""
    source = write_corpus(
        tmp_path / "a.parquet", [f"t{i} {i}" for i in range(40)], row_group_size=10
    )
    output = tmp_path / "out"
    run_corpus(source, output)
    first = read_outputs(output)
    lost = sorted(output.glob("part-*.parquet"))[2]
    lost.unlink()
    (output / "_SUCCESS").unlink()
    kept = part_times(output)
    before = asked()

    content = bytearray(source.read_bytes())
    content[4:500] = bytes(496)
    source.write_bytes(content)
    run_corpus(source, output)

    assert read_outputs(output) == first
    assert {name: t for name, t in part_times(output).items() if name in kept} == kept
    again = asked() - before
    assert {(position_of(key.split("/")[0]), int(key.split("/")[1])) for key in again} == {
        (2, index) for index in range(10)
    }


def test_whoever_follows_a_run_learns_how_many_replicas_there_are(
    tmp_path: Path, write_corpus: WriteCorpus, toy_model: str, replica_log: Path
) -> None:
    source = write_corpus(tmp_path / "a.parquet", [f"text {i}" for i in range(20)])
    settings = CorpusSettings(
        input=str(source), output=str(tmp_path / "out"), model=toy_model, shard_rows=10
    )
    seen: set[tuple[int, int]] = set()
    with open_run(settings, Decoding(steps=2)) as opened:
        execute(opened, lambda session: seen.add((session.documents, session.replicas)))
    assert (0, 1) in seen  # before anything is committed
    assert (20, 1) in seen


def test_failed_documents_cost_nobody_else(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus
) -> None:
    texts: list[Any] = [f"fine {i}" for i in range(25)]
    texts[3], texts[11], texts[12] = f"{POISON} here", None, "  "
    source = write_corpus(tmp_path / "a.parquet", texts)
    report = run_corpus(source, tmp_path / "out")
    good, bad = read_outputs(tmp_path / "out")
    assert sorted(r["source_row"] for r in [*good, *bad]) == list(range(25))
    assert {r["source_row"]: (r["error_type"], r["attempts"]) for r in bad} == {
        3: ("EngineError", 3),
        11: ("NullDocument", 0),
        12: ("EmptyDocument", 0),
    }
    assert (report["failed"], report["summarized"]) == (3, 22)
    assert report["error_types"] == {"EmptyDocument": 1, "EngineError": 1, "NullDocument": 1}


def test_repeated_ids_are_kept_and_counted(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["a", "b", "c", "d"], ids=["x", "y", "x", "x"])
    report = run_corpus(source, tmp_path / "out")
    good, _ = read_outputs(tmp_path / "out")
    assert [row["doc_id"] for row in good] == ["x", "y", "x", "x"]
    assert report["repeated_ids"] == 2


@pytest.mark.timeout(300)
def test_a_document_that_kills_its_replica_fails_alone(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus
) -> None:
    texts = [f"fine {i}" for i in range(20)]
    texts[7] = f"{CRASH} here"
    source = write_corpus(tmp_path / "a.parquet", texts)
    run_corpus(source, tmp_path / "out", max_attempts=2)
    good, bad = read_outputs(tmp_path / "out")
    assert [row["source_row"] for row in bad] == [7]
    assert len(good) == 19


def test_a_worker_that_dies_loses_and_repeats_nothing(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus, toy_model: str
) -> None:
    """The first worker to see the text kills itself; the one after it does not."""
    source = write_corpus(tmp_path / "a.parquet", [f"t{i} {i}" for i in range(60)])
    killed: list[int] = []
    settings = CorpusSettings(
        input=str(source), output=str(tmp_path / "out"), model=toy_model, shard_rows=5
    )

    def kill_one_worker(session: Session) -> None:
        if not killed:
            killed.extend(worker_pids())
            os.kill(killed[0], 9)

    with open_run(settings, Decoding()) as opened:
        report = execute(opened, kill_one_worker)
    good, bad = read_outputs(tmp_path / "out")
    assert killed
    assert (len(good), len(bad), report["summarized"]) == (60, 0, 60)
    assert len({row["source_row"] for row in good}) == 60


def worker_pids() -> list[int]:
    """Ray Data workers of the cluster that this process started."""
    return [pid for pid in descendants(os.getpid()) if "ShardWorker" in command(pid)]


def test_a_service_that_is_down_stops_the_run_and_commits_no_failures(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus, replica_log: Path
) -> None:
    source = write_corpus(tmp_path / "a.parquet", ["one", "two", "three", "four"])
    down = replica_log.with_name("down")
    down.touch()
    try:
        with pytest.raises(ClusterError, match="all 4 documents"):
            run_corpus(source, tmp_path / "out")
    finally:
        down.unlink()
    assert read_outputs(tmp_path / "out") == ([], [])
    assert run_corpus(source, tmp_path / "out")["summarized"] == 4


def test_documents_and_shards_are_seen_in_a_scrape(
    tmp_path: Path, write_corpus: WriteCorpus, run_corpus: RunCorpus, ray_cluster: dict[str, Any]
) -> None:
    """The workers are gone when the run is over; what they counted is not."""

    def scraped() -> dict[str, float]:
        return {
            "summarized": read_counter(ray_cluster, DOCUMENTS.ray_name, 'outcome="summarized"'),
            "failed": read_counter(ray_cluster, DOCUMENTS.ray_name, 'outcome="failed"'),
            "shards": read_counter(ray_cluster, SHARDS.ray_name, 'model="toy"'),
        }

    before = scraped()
    texts = [*(f"t {i}" for i in range(29)), ""]
    run_corpus(write_corpus(tmp_path / "a.parquet", texts), tmp_path / "out")
    grown = {"summarized": 29.0, "failed": 1.0, "shards": 3.0}
    for _ in range(120):
        if all(scraped()[key] >= before[key] + amount for key, amount in grown.items()):
            return
        time.sleep(0.5)
    raise AssertionError((before, scraped()))


def read_counter(node: dict[str, Any], name: str, label: str) -> float:
    """A counter's sum over all series with a label, from the node's exporter."""
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as response:
        lines = response.read().decode().splitlines()
    series = (line for line in lines if line.startswith(f"{name}{{") and label in line)
    return sum(float(line.rpartition(" ")[2]) for line in series)


def test_shards_of_several_windows_are_all_done_once(
    tmp_path: Path,
    write_corpus: WriteCorpus,
    run_corpus: RunCorpus,
    monkeypatch: pytest.MonkeyPatch,
    asked: Callable[[], Counter[str]],
) -> None:
    """Ray Data gets a few thousand shards at a time, however many there are."""
    monkeypatch.setattr("raydiff.corpus.run.WINDOW_SHARDS", 3)
    source = write_corpus(tmp_path / "a.parquet", [f"window {i}" for i in range(80)])
    report = run_corpus(source, tmp_path / "out")
    assert (report["summarized"], report["shards"]) == (80, 8)
    assert set(asked().values()) == {1}


def test_windows_cover_all_positions_in_order() -> None:
    assert list(windows(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(windows([], 3)) == []
