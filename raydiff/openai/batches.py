"""The body that asks for a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raydiff.config import Endpoint
from raydiff.openai.reading import Body

MAX_METADATA = 16

MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class CreateBatchBody(Body):
    """Body of `POST /v1/batches`."""

    input_file_id: str = Field(description="An uploaded file of purpose batch.")
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=MAX_METADATA)
