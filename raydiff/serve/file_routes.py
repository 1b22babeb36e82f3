"""`/v1/files`: what a key has uploaded, and what its batches have made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from raydiff.batches.files import FileRecord
from raydiff.batches.listing import page
from raydiff.batches.store import BatchStore
from raydiff.openai.problems import HttpRefusal, Problem
from raydiff.serve.access import Access, Caller
from raydiff.serve.batch_schemas import FILE_PATHS
from raydiff.serve.paging import list_body, page_query
from raydiff.serve.uploads import Upload

_T = TypeVar("_T")

DEFAULT_LIMIT = 100
MOST = 10_000


@dataclass(frozen=True, kw_only=True)
class FileRoutes:
    """A key sees its own files only; those of others do not exist to it."""

    store: BatchStore
    access: Access

    def add_to(self, app: Starlette) -> None:
        app.router.add_route("/v1/files", self.upload, methods=["POST"])
        app.router.add_route("/v1/files", self.all, methods=["GET"])
        app.router.add_route("/v1/files/{id}", self.one, methods=["GET"])
        app.router.add_route("/v1/files/{id}", self.delete, methods=["DELETE"])
        app.router.add_route("/v1/files/{id}/content", self.content, methods=["GET"])

    def paths(self) -> Mapping[str, Any]:
        return FILE_PATHS

    async def upload(self, request: Request) -> Response:
        """`POST /v1/files`."""
        caller = await caller_of(self.access, request)
        upload = Upload(self.store.files, self.store.settings.max_file_bytes)
        record = await upload.receive(request, caller.key_id)
        return JSONResponse(record.body())

    async def all(self, request: Request) -> Response:
        """`GET /v1/files`."""
        caller = await caller_of(self.access, request)
        asked = page_query(request, default=DEFAULT_LIMIT, most=MOST, known=("order", "purpose"))
        purpose = request.query_params.get("purpose")

        def read() -> dict[str, Any]:
            files, key_id = self.store.files, caller.key_id
            ids = files.ids(key_id)
            if purpose is not None:
                ids = [r.id for r in files.records(key_id, ids) if r.purpose == purpose]
            found = page(ids, after=asked.after, limit=asked.limit, newest_first=asked.newest_first)
            data = [record.body() for record in files.records(key_id, found.ids)]
            return list_body(data, has_more=found.has_more)

        return JSONResponse(await asyncio.to_thread(read))

    async def one(self, request: Request) -> Response:
        """`GET /v1/files/{id}`."""
        return JSONResponse((await self._find(request)).body())

    async def delete(self, request: Request) -> Response:
        """`DELETE /v1/files/{id}`. A batch that still reads it fails."""
        caller = await caller_of(self.access, request)
        file_id = request.path_params["id"]
        if not await asyncio.to_thread(self.store.files.delete, caller.key_id, file_id):
            raise not_found("file", file_id)
        return JSONResponse({"id": file_id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """`GET /v1/files/{id}/content`, piece by piece."""
        record = await self._find(request)
        headers = {"Content-Length": str(record.bytes)}
        pieces = iterate_in_threadpool(self.store.files.content(record))
        return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)

    async def _find(self, request: Request) -> FileRecord:
        caller = await caller_of(self.access, request)
        file_id = request.path_params["id"]
        return await found_or_404(
            lambda: self.store.files.find(caller.key_id, file_id), "file", file_id
        )


async def caller_of(access: Access, request: Request) -> Caller:
    """Who asks; noted for the request log.

    Raises:
        HttpRefusal: nobody who may (401).
    """
    caller = await access.caller(request)
    request.state.key_id = caller.key_id
    return caller


async def found_or_404(look: Callable[[], _T | None], kind: str, name: str) -> _T:
    """What a blocking look finds.

    Raises:
        HttpRefusal: nothing (404).
    """
    found = await asyncio.to_thread(look)
    if found is None:
        raise not_found(kind, name)
    return found


def not_found(kind: str, name: str) -> HttpRefusal:
    """There is no such thing, or not for this key, which is the same to it."""
    message = f"{kind}: no {kind} {name!r} exists, or it is not yours."
    return HttpRefusal(Problem(status=404, message=message, param="id", code="not_found"))
