"""`/v1/batches`: the gateway only keeps the books; jobs of the cluster do the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raydiff.batches.ids import new_batch_id
from raydiff.batches.listing import page
from raydiff.batches.records import BatchRecord, BatchState
from raydiff.batches.store import BatchStore
from raydiff.errors import UsageError, invalid
from raydiff.openai.batches import CreateBatchBody
from raydiff.openai.problems import HttpRefusal, Problem
from raydiff.openai.protocol import parse_body
from raydiff.serve.access import Access, Caller
from raydiff.serve.batch_schemas import BATCH_PATHS, FILE_PATHS
from raydiff.serve.bodies import read_json
from raydiff.serve.file_routes import caller_of, found_or_404
from raydiff.serve.paging import list_body, page_query
from raydiff.serve.uploads import PURPOSE

DEFAULT_LIMIT = 20
MOST = 100

OFF = Problem(
    status=404,
    message=(
        "Files and batches are off. Start with `raydiff serve --batches DIR`, or set "
        "batches.location in the application's arguments."
    ),
    code="batches_off",
)


@dataclass(frozen=True, kw_only=True)
class BatchModel:
    """A model that batches may ask for."""

    checkpoint: str
    fingerprint: str


class Attendant(Protocol):
    """Who looks after batches, and is told of new ones."""

    def nudge(self) -> None:
        """There is something to look after."""


@dataclass(frozen=True, kw_only=True)
class BatchRoutes:
    """A key sees its own batches only; those of others do not exist to it."""

    store: BatchStore
    access: Access
    attendant: Attendant
    models: Mapping[str, BatchModel]
    """By served name."""
    app_name: str
    max_body_bytes: int

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/v1/batches", self.create, methods=["POST"])
        app.router.add_route("/v1/batches", self.all, methods=["GET"])
        app.router.add_route("/v1/batches/{id}", self.one, methods=["GET"])
        app.router.add_route("/v1/batches/{id}/cancel", self.cancel, methods=["POST"])

    def paths(self) -> Mapping[str, Any]:
        return BATCH_PATHS

    async def create(self, request: Request) -> Response:
        """`POST /v1/batches`."""
        caller = await caller_of(self.access, request)
        raw, _ = await read_json(request, self.max_body_bytes)
        body = parse_body(CreateBatchBody, raw)
        file = await asyncio.to_thread(self.store.files.find, caller.key_id, body.input_file_id)
        if file is None:
            message = f"input_file_id: no file {body.input_file_id!r} exists, or it is not yours."
            raise UsageError(message, "input_file_id")
        if file.purpose != PURPOSE:
            message = invalid("input_file_id", expected="a file for a batch", got=file.purpose)
            raise UsageError(message, "input_file_id")
        models = {name: m for name, m in self.models.items() if caller.may_use(name)}
        now_s = time.time()
        record = BatchRecord(
            id=new_batch_id(now_s),
            key_id=caller.key_id,
            endpoint=body.endpoint,
            input_file_id=file.id,
            created_at=int(now_s),
            app_name=self.app_name,
            models={name: model.checkpoint for name, model in models.items()},
            fingerprints={name: model.fingerprint for name, model in models.items()},
            metadata=body.metadata,
        )
        await asyncio.to_thread(self.store.add, record)
        self.attendant.nudge()
        return JSONResponse(BatchState(record=record).body())

    async def all(self, request: Request) -> Response:
        """`GET /v1/batches`, the newest first."""
        caller = await caller_of(self.access, request)
        asked = page_query(request, default=DEFAULT_LIMIT, most=MOST, known=())

        def read() -> dict[str, Any]:
            ids = self.store.ids(caller.key_id)
            found = page(ids, after=asked.after, limit=asked.limit)
            data = [state.body() for state in self.store.states(caller.key_id, found.ids)]
            return list_body(data, has_more=found.has_more)

        return JSONResponse(await asyncio.to_thread(read))

    async def one(self, request: Request) -> Response:
        """`GET /v1/batches/{id}`."""
        _, state = await self._find(request)
        return JSONResponse(state.body())

    async def cancel(self, request: Request) -> Response:
        """`POST /v1/batches/{id}/cancel`. Lines that are done are kept."""
        caller, state = await self._find(request)
        batch_id = state.record.id
        if state.ended is not None:
            message = f"Batch {batch_id} cannot be cancelled: it is {state.status}."
            raise HttpRefusal(Problem(status=409, message=message, code="batch_ended"))
        await asyncio.to_thread(self.store.cancel, batch_id, int(time.time()))
        self.attendant.nudge()
        after = await asyncio.to_thread(self.store.find, caller.key_id, batch_id)
        return JSONResponse((after or state).body())

    async def _find(self, request: Request) -> tuple[Caller, BatchState]:
        caller = await caller_of(self.access, request)
        batch_id = request.path_params["id"]
        state = await found_or_404(
            lambda: self.store.find(caller.key_id, batch_id), "batch", batch_id
        )
        return caller, state


@dataclass(frozen=True, kw_only=True)
class BatchesOff:
    """The same paths where no location is set: each says which setting is missing."""

    access: Access

    def add_to(self, app: Starlette) -> None:
        for path, item in {**FILE_PATHS, **BATCH_PATHS}.items():
            app.router.add_route(path, self.refuse, methods=[verb.upper() for verb in item])

    def paths(self) -> Mapping[str, Any]:
        return {}

    async def refuse(self, request: Request) -> Response:
        """404, to whoever may call at all."""
        await caller_of(self.access, request)
        raise HttpRefusal(OFF)
