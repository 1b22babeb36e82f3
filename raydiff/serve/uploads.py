"""Uploads on their way to the store, as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from raydiff.batches.files import FileRecord, FileStore
from raydiff.batches.ids import new_file_id
from raydiff.batches.pieces import PieceWriter
from raydiff.errors import UsageError, invalid
from raydiff.openai.problems import HttpRefusal, Problem
from raydiff.serve.multipart import FormEvent, FormParser, PartBegins, PartData, boundary_of

PURPOSE = "batch"
_FIELD_BYTES = 4 * 1024
_FORM_BYTES = 64 * 1024
"""Of a form beside its file."""
_NAME_CHARACTERS = 255


class Upload:
    """One form with a file."""

    def __init__(self, files: FileStore, max_bytes: int) -> None:
        self._files = files
        self._max_bytes = max_bytes
        self._id = new_file_id(time.time())
        self._writer = PieceWriter(files.folder, self._id)
        self._fields: dict[str, bytes] = {}
        self._current = ""
        self._filename: str | None = None

    async def receive(self, request: Request, key_id: str) -> FileRecord:
        """Take the form from a request and keep its file. What is refused, or broken off, leaves
        nothing.

        Raises:
            HttpRefusal: the file is too large (413).
            UsageError: the form or one of its fields is wrong.
        """
        await asyncio.to_thread(self._writer.begin)
        try:
            async for event in self._events(request):
                await self._take(event)
            self._check()
            await asyncio.to_thread(self._writer.finish)
            record = FileRecord(
                id=self._id,
                bytes=self._writer.size_bytes,
                created_at=int(time.time()),
                filename=self._filename or "",
                purpose=PURPOSE,
                pieces=self._writer.pieces,
            )
            await asyncio.to_thread(self._files.add, key_id, record)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._writer.abandon))
            raise
        return record

    async def _events(self, request: Request) -> AsyncIterator[FormEvent]:
        parser = FormParser(boundary_of(request.headers.get("content-type", "")))
        declared = request.headers.get("content-length", "")
        if declared.isdecimal():
            self._require_size(int(declared) - _FORM_BYTES)
        received = 0
        try:
            async for data in request.stream():
                received += len(data)
                self._require_size(received - _FORM_BYTES)
                for event in parser.feed(data):
                    yield event
        except ClientDisconnect:
            raise UsageError("body: the client went away.") from None
        if not parser.complete:
            raise UsageError("body: expected a form with its last boundary, got a part of one.")

    async def _take(self, event: FormEvent) -> None:
        if isinstance(event, PartBegins):
            self._begin(event)
        elif self._current == "file":
            self._require_size(self._writer.size_bytes + len(event.data))
            await asyncio.to_thread(self._writer.write, event.data)
        else:
            self._append(event)

    def _begin(self, part: PartBegins) -> None:
        if part.name not in ("file", "purpose"):
            raise UsageError(f"{part.name}: unknown field. Known are file, purpose.", part.name)
        if part.name in self._fields:
            raise UsageError(f"{part.name}: expected once, got twice.", part.name)
        self._fields[part.name] = b""
        self._current = part.name
        if part.name == "file":
            self._filename = (part.filename or "")[:_NAME_CHARACTERS]

    def _append(self, event: PartData) -> None:
        value = self._fields[self._current] + event.data
        if len(value) > _FIELD_BYTES:
            message = invalid(self._current, expected=f"at most {_FIELD_BYTES} bytes", got="more")
            raise UsageError(message, self._current)
        self._fields[self._current] = value

    def _check(self) -> None:
        for name in ("file", "purpose"):
            if name not in self._fields:
                raise UsageError(f"{name}: required, but missing.", name)
        purpose = self._fields["purpose"].decode("utf-8", "replace")
        if purpose != PURPOSE:
            raise UsageError(invalid("purpose", expected=repr(PURPOSE), got=purpose), "purpose")
        if not self._writer.size_bytes:
            raise UsageError("file: expected some content, got none.", "file")

    def _require_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            message = invalid("file", expected=f"at most {self._max_bytes} bytes", got=size_bytes)
            problem = Problem(status=413, message=message, param="file", code="file_too_large")
            raise HttpRefusal(problem)
