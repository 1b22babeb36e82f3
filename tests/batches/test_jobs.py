"""What Ray's job server answers is understood, through Ray's own client."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from raydiff.batches.jobs import RayJobs, entry_point
from raydiff.cli import build_parser
from raydiff.config import BatchSettings, StorageSettings
from raydiff.errors import ClusterError

from ..serve.live import listening


class JobServer:
    """The paths of Ray's job server that are asked, with its words."""

    def __init__(self) -> None:
        self.entrypoints: dict[str, str] = {}
        self.status = "RUNNING"

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/version", self.version),
                Route("/api/jobs/", self.submit, methods=["POST"]),
                Route("/api/jobs/{id}", self.one),
            ]
        )

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": "4", "ray_version": "2.60.0", "ray_commit": "x"})

    async def submit(self, request: Request) -> Response:
        body = await request.json()
        name = body["submission_id"]
        if name in self.entrypoints:
            text = f"Job with submission_id {name} already exists. Please use a different one."
            return PlainTextResponse(text, status_code=500)
        self.entrypoints[name] = body["entrypoint"]
        return JSONResponse({"job_id": name, "submission_id": name})

    async def one(self, request: Request) -> Response:
        name = request.path_params["id"]
        if name not in self.entrypoints:
            return PlainTextResponse(f"Job {name} does not exist", status_code=404)
        fields = {"type": "SUBMISSION", "submission_id": name, "status": self.status}
        return JSONResponse({**fields, "entrypoint": self.entrypoints[name]})


@pytest.fixture
def server() -> JobServer:
    return JobServer()


@pytest.fixture
def jobs(server: JobServer) -> Iterator[RayJobs]:
    with listening(server.app()) as url:
        yield RayJobs(BatchSettings(location="/store", jobs_url=url))


def test_a_job_is_unknown_then_runs_then_is_over(server: JobServer, jobs: RayJobs) -> None:
    assert jobs.status("job-1") == "unknown"
    jobs.submit("job-1", "batch_x")
    assert jobs.status("job-1") == "running"
    for status in ("SUCCEEDED", "FAILED", "STOPPED"):
        server.status = status
        assert jobs.status("job-1") == "over"


def test_a_name_that_is_taken_is_no_error(server: JobServer, jobs: RayJobs) -> None:
    """Another gateway was first."""
    jobs.submit("job-1", "batch_x")
    jobs.submit("job-1", "batch_x")
    assert list(server.entrypoints) == ["job-1"]


def test_a_server_that_is_away_is_a_cluster_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    away = RayJobs(BatchSettings(location="/store", jobs_url=f"http://127.0.0.1:{port}"))
    with pytest.raises(ClusterError, match="jobs_url"):
        away.status("job-1")


def test_the_command_of_a_job_carries_the_settings(server: JobServer, jobs: RayJobs) -> None:
    storage = StorageSettings(endpoint_url="http://store:9000")
    settings = BatchSettings(location="s3://bucket/it's here", storage=storage, shard_lines=7)
    _, *words = shlex.split(entry_point("batch_x", settings))
    assert words[:2] == ["-m", "raydiff"]
    args = build_parser().parse_args(words[2:])
    assert args.batch == "batch_x"
    assert BatchSettings(**json.loads(args.settings)) == settings
