"""An application that is mending itself is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve.schema import ApplicationStatus

from raydiff.errors import ClusterError
from raydiff.launch import deploy


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[ApplicationStatus]:
    """What Serve says, look by look; the last for ever."""
    said: list[ApplicationStatus] = []

    def look() -> dict[str, Any]:
        status = said.pop(0) if len(said) > 1 else said[0]
        return {"app": SimpleNamespace(status=status, message="why", deployments={})}

    monkeypatch.setattr(deploy, "_statuses", look)
    monkeypatch.setattr(deploy, "POLL_S", 0.001)
    return said


def test_an_application_whose_replica_is_being_replaced_is_waited_for(
    statuses: list[ApplicationStatus],
) -> None:
    statuses += [ApplicationStatus.UNHEALTHY] * 3 + [ApplicationStatus.RUNNING]
    deploy.wait_until_running("app")
    assert statuses == [ApplicationStatus.RUNNING]


def test_one_that_stays_unhealthy_has_failed(
    statuses: list[ApplicationStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy, "RECOVERY_S", 0.01)
    statuses.append(ApplicationStatus.UNHEALTHY)
    with pytest.raises(ClusterError, match="why"):
        deploy.wait_until_running("app")


def test_one_that_cannot_be_deployed_has_failed_at_once(
    statuses: list[ApplicationStatus],
) -> None:
    statuses += [ApplicationStatus.DEPLOYING, ApplicationStatus.DEPLOY_FAILED]
    with pytest.raises(ClusterError, match="why"):
        deploy.wait_until_running("app")
