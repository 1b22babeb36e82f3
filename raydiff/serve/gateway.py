"""The gateway: the Serve deployment in front of the replicas. Loads no torch."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from raydiff.client import Client
from raydiff.config import AppSettings, ModelSettings
from raydiff.families import load_spec
from raydiff.openai.prompts import PromptReader
from raydiff.retries import RetryPolicy
from raydiff.serve.access import access_of, check_binding, listening_host
from raydiff.serve.access.rates.remote import ServeLink
from raydiff.serve.api import TextApi
from raydiff.serve.batching import batch_groups
from raydiff.serve.draining import Drain
from raydiff.serve.served import ServedModel
from raydiff.text import Tokenizer
from raydiff.version import __version__


class Gateway:
    """The Serve deployment's class; Serve asks it for its ASGI application."""

    def __init__(
        self,
        settings: AppSettings,
        handles: Mapping[str, DeploymentHandle],
        limiter: DeploymentHandle | None = None,
    ) -> None:
        """`limiter` is there where callers have keys.

        Raises:
            UsageError: Serve listens where everyone may call, and nothing says that this is meant;
                or the key file is wrong.
        """
        check_binding(settings.access, listening_host())
        models = {
            model.served_name: served_model(model, handles[model.served_name])
            for model in settings.models
        }
        link = None if limiter is None else ServeLink(limiter)
        access = access_of(settings.access, link, settings.gateways)
        app_name = serve.get_replica_context().app_name
        groups, self._attendance = batch_groups(settings, models, access, app_name)
        self._api = TextApi(
            models,
            request_timeout_s=settings.request_timeout_s,
            max_body_bytes=settings.max_body_bytes,
            access=access,
            settings=settings.access,
            groups=groups,
        )
        self._drain = Drain(self._api.app(answer_ids=False))
        if self._attendance is not None:
            self._attendance.start()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return self._drain

    async def drain(self) -> int:
        """Refuse new requests from now on; how many still run here."""
        if self._attendance is not None:
            self._attendance.stop()
        return self._drain.begin()


def served_model(settings: ModelSettings, handle: DeploymentHandle) -> ServedModel:
    """Load what the gateway needs of a model: its spec and tokenizer."""
    spec = replace(load_spec(settings.model), name=settings.served_name)  # errors tell no paths
    reader = PromptReader(spec=spec, tokenizer=Tokenizer.load(settings.model))
    return ServedModel(
        name=settings.served_name,
        reader=reader,
        replicas=Client(handle, RetryPolicy(overloaded=False)),
        min_replicas=settings.min_replicas,
        created=int(time.time()),
        batch_only=settings.batch_only,
        fingerprint=fingerprint_of(settings, reader),
    )


def fingerprint_of(settings: ModelSettings, reader: PromptReader) -> str:
    """Of what decides an answer: raydiff's version, the model as it is configured, its
    arithmetic. The weights themselves are not read: a checkpoint replaced in place keeps it."""
    parts = (__version__, settings.model, settings.device, settings.dtype, reader.spec)
    return f"rd_{hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()}"
