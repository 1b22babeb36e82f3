"""What the documentation says of files and batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydiff.openai.batches import CreateBatchBody
from raydiff.openai.schemas import body_schema
from raydiff.serve.documentation import answer, operation

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_TIME = {"type": ["integer", "null"]}

_FILE: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "bytes", "created_at", "filename", "purpose"],
    "properties": {
        "id": _STRING,
        "object": {"const": "file"},
        "bytes": _INTEGER,
        "created_at": _INTEGER,
        "filename": _STRING,
        "purpose": {"enum": ["batch", "batch_output"]},
        "status": _STRING,
    },
}
_ERROR = {
    "type": "object",
    "properties": {
        "code": _STRING,
        "message": _STRING,
        "line": {"type": ["integer", "null"]},
        "param": _TEXT_OR_NULL,
    },
}
_BATCH: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "endpoint", "input_file_id", "status", "created_at"],
    "properties": {
        "id": _STRING,
        "object": {"const": "batch"},
        "endpoint": _STRING,
        "model": _TEXT_OR_NULL,
        "input_file_id": _STRING,
        "completion_window": {"const": "24h"},
        "status": {
            "enum": [
                "validating",
                "failed",
                "in_progress",
                "finalizing",
                "completed",
                "expired",
                "cancelling",
                "cancelled",
            ]
        },
        "errors": {
            "type": ["object", "null"],
            "properties": {"data": {"type": "array", "items": _ERROR}},
        },
        "output_file_id": _TEXT_OR_NULL,
        "error_file_id": _TEXT_OR_NULL,
        "created_at": _INTEGER,
        **dict.fromkeys(
            (
                "in_progress_at",
                "expires_at",
                "finalizing_at",
                "completed_at",
                "failed_at",
                "expired_at",
                "cancelling_at",
                "cancelled_at",
            ),
            _TIME,
        ),
        "request_counts": {
            "type": "object",
            "properties": dict.fromkeys(("total", "completed", "failed"), _INTEGER),
        },
        "metadata": {"type": ["object", "null"]},
    },
}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["object", "data", "has_more"],
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": item},
            "has_more": {"type": "boolean"},
        },
    }


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _with(made: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    made["parameters"] = [*made["parameters"], *parameters]
    return made


_ID = {"name": "id", "in": "path", "required": True, "schema": _STRING}
_AFTER = _query("after", _STRING)
_ORDER = _query("order", {"enum": ["asc", "desc"]})
_PURPOSE = _query("purpose", _STRING)


def _limit(most: int) -> dict[str, Any]:
    return _query("limit", {"type": "integer", "minimum": 1, "maximum": most})


def _upload() -> dict[str, Any]:
    made = operation(
        "upload_file", "Upload a file", {"200": answer("The file.", _FILE)}, refusals=(413,)
    )
    form = {
        "type": "object",
        "required": ["file", "purpose"],
        "additionalProperties": False,
        "properties": {
            "file": {"type": "string", "contentMediaType": "application/octet-stream"},
            "purpose": {"const": "batch"},
        },
    }
    made["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    return made


def _content() -> dict[str, Any]:
    content: dict[str, Any] = {"application/octet-stream": {"schema": {}}}
    found = {**answer("The content."), "content": content}
    return operation("file_content", "A file's content", {"200": found}, refusals=(404,))


def _simple(
    name: str, summary: str, schema: dict[str, Any], refusals: tuple[int, ...] = (404,)
) -> dict[str, Any]:
    return operation(name, summary, {"200": answer(summary, schema)}, refusals=refusals)


_DELETED = {"type": "object", "properties": {"id": _STRING, "deleted": {"const": True}}}

FILE_PATHS: Mapping[str, Any] = {
    "/v1/files": {
        "post": _upload(),
        "get": _with(
            _simple("list_files", "The files", _list_of(_FILE), ()),
            *(_limit(10_000), _AFTER, _ORDER, _PURPOSE),
        ),
    },
    "/v1/files/{id}": {
        "get": _with(_simple("retrieve_file", "One file", _FILE), _ID),
        "delete": _with(_simple("delete_file", "Delete a file", _DELETED), _ID),
    },
    "/v1/files/{id}/content": {"get": _with(_content(), _ID)},
}
"""OpenAPI's path items of files."""

BATCH_PATHS: Mapping[str, Any] = {
    "/v1/batches": {
        "post": operation(
            "create_batch",
            "Ask for a batch",
            {"200": answer("The batch.", _BATCH)},
            body=body_schema(CreateBatchBody),
            refusals=(413,),
        ),
        "get": _with(
            _simple("list_batches", "The batches", _list_of(_BATCH), ()), _limit(100), _AFTER
        ),
    },
    "/v1/batches/{id}": {"get": _with(_simple("retrieve_batch", "One batch", _BATCH), _ID)},
    "/v1/batches/{id}/cancel": {
        "post": _with(_simple("cancel_batch", "Cancel a batch", _BATCH, (404, 409)), _ID)
    },
}
"""OpenAPI's path items of batches."""
