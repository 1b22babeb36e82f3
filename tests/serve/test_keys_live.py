"""Keys on the real application: two gateways, Serve's proxy, and what is left lying about."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray import serve
from ray.serve.context import _get_global_client

from raydiff.config import AccessSettings, AppSettings, ModelSettings
from raydiff.errors import UsageError
from raydiff.launch import RunningApp
from raydiff.serve import gateway
from raydiff.serve.access import listening_host
from raydiff.serve.access.keys import hash_of
from raydiff.serve.access.rates.authority import SETTLE_S
from raydiff.serve.app import build_app
from raydiff.serve.gateway import Gateway
from tests.serve.access.conftest import write_keys
from tests.serve.scrape import scrape

GATEWAYS = 2
LIMIT = 60
TEXT = "a text that nobody else has: quincunx"
KEYS: tuple[dict[str, Any], ...] = (
    {"id": "burst", "requests_per_minute": LIMIT},
    {"id": "outage", "requests_per_minute": LIMIT},
    {"id": "free"},
)


@dataclass(frozen=True)
class Keyed:
    """An application with keys."""

    url: str
    keys_file: Path

    def ask(self, key_id: str, **more: Any) -> httpx.Response:
        body = {"prompt": TEXT, "max_tokens": 4, **more}
        headers = {"Authorization": f"Bearer key-{key_id}", "Connection": "close"}
        return httpx.post(f"{self.url}/v1/completions", json=body, headers=headers, timeout=60)

    def statuses(self, key_id: str, count: int) -> Counter[int]:
        with ThreadPoolExecutor(8) as pool:
            return Counter(
                response.status_code
                for response in pool.map(lambda _: self.ask(key_id), range(count))
            )


@pytest.fixture(scope="module")
def keyed(serving: RunningApp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """Beside the other application, on a route of its own."""
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    write_keys(path, *KEYS)
    model = ModelSettings(model="simulated:16x4=0.01s", name="sim", num_cpus=0.1)
    settings = AppSettings(
        models=(model,),
        gateways=GATEWAYS,
        drain_s=0,
        access=AccessSettings(keys_file=str(path), log_requests=True),
    )
    serve.run(build_app(settings), name="keyed", route_prefix="/keyed")
    keyed = Keyed(f"{serving.url}/keyed", path)
    deadline = time.monotonic() + 30
    while keyed.ask("free").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(SETTLE_S)
    yield keyed
    serve.delete("keyed")


def logs() -> Path:
    node = ray._private.worker._global_node
    return Path(node.get_session_dir_path()) / "logs"


def test_a_key_gets_its_limit_over_all_gateways_and_no_more(keyed: Keyed) -> None:
    keyed.statuses("burst", GATEWAYS)  # from here on each gateway has met the limiter
    before = time.monotonic()
    served = Counter[int]()
    while served[429] < LIMIT:
        served += keyed.statuses("burst", 40)
        assert set(served) <= {200, 429}
    assert time.monotonic() - before < 55
    assert 0.9 * LIMIT <= served[200] + GATEWAYS <= 1.1 * LIMIT
    refused = keyed.ask("burst")
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 0 < int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-ratelimit-limit-requests"] == str(LIMIT)
    assert keyed.ask("free").status_code == 200
    lines = [line for out in logs().glob("worker-*.out") for line in requests_in(out, "burst")]
    assert len({process for process, _ in lines}) == GATEWAYS
    assert sum(entry["status"] == 200 for _, entry in lines) == served[200] + GATEWAYS


def requests_in(out: Path, key_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in out.read_text().splitlines():
        if line.startswith("{") and f'"key_id": "{key_id}"' in line:
            yield out.name, json.loads(line)


def test_a_limiter_that_dies_takes_nobody_along_and_its_successor_knows_what_was_used(
    keyed: Keyed,
) -> None:
    served = keyed.statuses("outage", LIMIT // 2)
    time.sleep(1.5)
    ray.kill(ray.get_actor(limiter_actor(), namespace="serve"), no_restart=True)
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        served += keyed.statuses("outage", 6)
        time.sleep(0.5)
    assert set(served) <= {200, 429}
    assert LIMIT // 2 < served[200] <= 1.1 * LIMIT


def limiter_actor() -> str:
    details = _get_global_client().get_serve_details()["applications"]["keyed"]
    (replica,) = details["deployments"]["limiter"]["replicas"]
    name: str = replica["actor_name"]
    return name


def test_a_removed_key_stops_working_within_seconds(keyed: Keyed) -> None:
    write_keys(keyed.keys_file, *KEYS, {"id": "leaver"})
    time.sleep(2)
    assert keyed.statuses("leaver", 2 * GATEWAYS) == {200: 2 * GATEWAYS}
    write_keys(keyed.keys_file, *KEYS)
    time.sleep(2)
    assert keyed.statuses("leaver", 2 * GATEWAYS) == {401: 2 * GATEWAYS}


def test_no_key_hash_or_text_is_left_anywhere(keyed: Keyed, serving: RunningApp) -> None:
    """In files that Ray and Serve write, in Serve's answers about itself, metrics, processes."""
    for response in (
        keyed.ask("free"),
        keyed.ask("free", stream=True),
        keyed.ask("free", model=TEXT),
        keyed.ask("free", stop=[TEXT], max_tokens=-1),
        keyed.ask("free", prompt=[TEXT] * 2000),
        keyed.ask("stranger"),
    ):
        assert response.status_code in (200, 400, 401, 404)
    secrets = [TEXT.encode(), *(f"key-{k['id']}".encode() for k in (*KEYS, {"id": "stranger"}))]
    secrets += [hash_of(f"key-{key['id']}").encode() for key in KEYS]
    time.sleep(1)
    found = {str(f): f.read_bytes() for f in logs().rglob("*") if f.is_file()}
    assert any(b'"key_id": "free"' in content for content in found.values())
    found["details"] = repr(_get_global_client().get_serve_details()).encode()
    found["metrics"] = repr(scrape(serving.metrics_url)).encode()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        if int(process.parent.name) != os.getpid():
            try:
                found[str(process)] = process.read_bytes()
            except OSError:  # it ended meanwhile
                continue
    for name, content in found.items():
        for secret in secrets:
            assert secret not in content, name


def test_a_gateway_does_not_start_where_serve_listens_to_everyone(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks Serve: an application of `serve deploy` is told nothing of the address."""
    assert listening_host() == "127.0.0.1"
    monkeypatch.setattr(gateway, "listening_host", lambda: "0.0.0.0")
    with pytest.raises(UsageError, match="anonymous"):
        Gateway(AppSettings(), {})
