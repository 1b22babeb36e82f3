"""A config goes to the cluster and is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from raydiff.errors import ClusterError
from raydiff.launch import submission
from raydiff.launch.submission import connect, submit

CONFIG = {"applications": [{"name": "a"}, {"name": "b"}]}


class FakeApi:
    """Serve's REST API: reports the states given, one look after another."""

    def __init__(self, *states: dict[str, str]) -> None:
        self._states = list(states)
        self.deployed: list[dict[str, Any]] = []

    def deploy_applications(self, config: dict[str, Any]) -> None:
        self.deployed.append(config)

    def get_serve_details(self) -> dict[str, Any]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {
            "applications": {n: {"status": s, "message": f"{n} says"} for n, s in state.items()}
        }


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "POLL_S", 0.0)


def test_it_waits_until_every_application_serves() -> None:
    api = FakeApi({}, {"a": "RUNNING", "b": "DEPLOYING"}, {"a": "RUNNING", "b": "RUNNING"})
    assert submit(api, CONFIG, 60) == ["a", "b"]
    assert api.deployed == [CONFIG]


def test_one_that_fails_is_an_error_with_its_reason() -> None:
    with pytest.raises(ClusterError, match="'b' failed: b says"):
        submit(FakeApi({"a": "RUNNING", "b": "DEPLOY_FAILED"}), CONFIG, 60)


def test_it_waits_no_longer_than_told() -> None:
    with pytest.raises(ClusterError, match="not all serve"):
        submit(FakeApi({"a": "DEPLOYING"}), CONFIG, 0.01)
    assert submit(FakeApi({}), CONFIG, 0.0) == ["a", "b"]


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "ray://127.0.0.1:1", "http://127.0.0.1:1"])
def test_an_address_where_no_dashboard_answers_is_named(address: str) -> None:
    with pytest.raises(ClusterError, match=r"--address .*127\.0\.0\.1"):
        connect(address)
