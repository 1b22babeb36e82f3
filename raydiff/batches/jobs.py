"""The jobs of batches, through the cluster's job server."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable
from typing import Any, Literal, Protocol

from raydiff.config import BatchSettings
from raydiff.errors import ClusterError

_log = logging.getLogger(__name__)

JobStatus = Literal["unknown", "running", "over"]


class Jobs(Protocol):
    """What submits jobs; `RayJobs` is the real one."""

    def status(self, job_id: str) -> JobStatus:
        """Whether a job waits or runs, is over in whatever way, or was never heard of here.

        Raises:
            ClusterError: there is no job server that answers.
        """

    def submit(self, job_id: str, batch_id: str) -> None:
        """Begin a batch's job, unless one of that name was begun before.

        Raises:
            ClusterError: there is no job server that answers.
        """


class RayJobs:
    """Ray's job server. It is looked for when it is first needed."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._client: Any = None

    def status(self, job_id: str) -> JobStatus:
        """See `Jobs`."""
        status = self._ask(lambda client: client.get_job_status(job_id), "does not exist")
        if status is None:
            return "unknown"
        return "over" if status.is_terminal() else "running"

    def submit(self, job_id: str, batch_id: str) -> None:
        """See `Jobs`."""
        entrypoint = entry_point(batch_id, self._settings)
        self._ask(
            lambda client: client.submit_job(entrypoint=entrypoint, submission_id=job_id),
            "already exists",
        )
        _log.info("Job %s is submitted.", job_id)

    def _ask(self, call: Callable[[Any], Any], expected: str) -> Any:
        """The server's answer; `None` if it refuses with words that were expected."""
        try:
            if self._client is None:
                self._client = _connect(self._settings.jobs_url)
            return call(self._client)
        except Exception as error:  # the client raises RuntimeError and whatever requests raises
            if expected in str(error):
                return None
            self._client = None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ClusterError(
                f"The job server that runs batches does not answer as expected: {lines[-1]} "
                "Start the head with its dashboard, or name it with batches.jobs_url."
            ) from error


def entry_point(batch_id: str, settings: BatchSettings) -> str:
    """The command of a batch's job. Credentials are no settings, so it tells no secret."""
    text = settings.model_dump_json(exclude_defaults=True)
    return shlex.join([sys.executable, "-m", "raydiff", "batch", batch_id, "--settings", text])


def _connect(jobs_url: str | None) -> Any:
    import ray
    from ray.job_submission import JobSubmissionClient

    return JobSubmissionClient(jobs_url or ray.get_runtime_context().gcs_address)
