"""The two libraries that reach an object store: boto3 for requests, pyarrow for reading data.

Both look for credentials by themselves, each along its standard chain. No client is pickled:
every process makes its own, once.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore
import pyarrow as pa
import pyarrow.fs
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from raydiff.config import StorageSettings
from raydiff.version import __version__

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 20
_POOL = 64
_ARROW_ATTEMPTS = 3
_DEFAULT_REGION = "us-east-1"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


def s3_client(storage: StorageSettings) -> Any:
    """This process's boto3 client, which makes each request once: `patiently` repeats them."""
    return _client(storage.endpoint_url, storage.region, storage.anonymous)


@cache
def _client(endpoint_url: str | None, region: str | None, anonymous: bool) -> Any:
    options: dict[str, Any] = {"signature_version": botocore.UNSIGNED} if anonymous else {}
    if endpoint_url is not None:
        options["s3"] = {"addressing_style": "path"}
    session = boto3.session.Session()
    return session.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=region or session.region_name or _DEFAULT_REGION,
        config=Config(
            # botocore's own modes give up by a count or a shared quota, which a store that is
            # away for half a minute exhausts when many requests are under way.
            retries={"total_max_attempts": 1},
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            max_pool_connections=_POOL,
            tcp_keepalive=True,
            user_agent_extra=f"raydiff/{__version__}",
            **options,
        ),
    )


def s3_filesystem(storage: StorageSettings, bucket: str) -> pa.fs.S3FileSystem:
    """This process's pyarrow filesystem for a bucket."""
    return _filesystem(storage.endpoint_url, storage.region, storage.anonymous, bucket)


@cache
def _filesystem(
    endpoint_url: str | None, region: str | None, anonymous: bool, bucket: str
) -> pa.fs.S3FileSystem:
    client = _client(endpoint_url, region, anonymous)
    endpoint = urlsplit(client.meta.endpoint_url)
    custom = not (endpoint.hostname or "").endswith(_AMAZON)
    return pa.fs.S3FileSystem(
        anonymous=anonymous,
        region=region or (client.meta.region_name if custom else _region_of(client, bucket)),
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc if custom else None,
        connect_timeout=_CONNECT_TIMEOUT_S,
        request_timeout=_READ_TIMEOUT_S,
        retry_strategy=pa.fs.AwsStandardS3RetryStrategy(max_attempts=_ARROW_ATTEMPTS),
    )


def _region_of(client: Any, bucket: str) -> str:
    """Where a bucket is. boto3 follows Amazon's redirections between regions, pyarrow does not."""
    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as error:
        answer = error.response
    except BotoCoreError:
        return str(client.meta.region_name)
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region", client.meta.region_name))
