"""A real S3 server on loopback: SeaweedFS, with one identity and a data directory of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_READY_S = 60


@dataclass(frozen=True)
class S3Server:
    """Where the server is and who may use it."""

    url: str
    access_key: str
    secret_key: str

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to be let in; the address is another matter."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, url: str | None = None) -> Any:
        """A boto3 client of the test's own, past all proxies unless given the address of one."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=url or self.url,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    def make_bucket(self) -> str:
        """A new bucket, by name."""
        bucket = f"raydiff-{secrets.token_hex(6)}"
        self.client().create_bucket(Bucket=bucket)
        return bucket

    def public_policy(self, bucket: str) -> str:
        """The policy that lets everyone read a bucket."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statement = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": resources,
        }
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server, wait until it answers, and stop it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rd-s3-"))  # short: it holds a socket
    access_key, secret_key = f"AK{secrets.token_hex(6)}", secrets.token_hex(16)
    ports = _free_ports(8)
    command = _command(folder, ports)
    _write_identity(folder / "identity.json", access_key, secret_key)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder
        )
    server = S3Server(f"http://127.0.0.1:{ports[0]}", access_key, secret_key)
    try:
        _wait_until_ready(server, process, folder / "log")
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _write_identity(path: Path, access_key: str, secret_key: str) -> None:
    """In a file, not in the process list."""
    path.touch(mode=0o600)
    credentials = [{"accessKey": access_key, "secretKey": secret_key}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "raydiff", "credentials": credentials, "actions": actions}
    path.write_text(json.dumps({"identities": [identity]}))


def _command(folder: Path, ports: list[int]) -> list[str]:
    data = folder / "data"
    data.mkdir()
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    flags = {
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "dir": str(data),
        "master.telemetry": "false",
        "master.port": master,
        "master.port.grpc": master_grpc,
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": 64,
        "volume.port": volume,
        "volume.port.public": volume,
        "volume.port.grpc": volume_grpc,
        "volume.max": 400,  # every bucket takes several
        "volume.preStopSeconds": 0,
        "volume.minFreeSpace": 1,
        "filer": "true",
        "filer.port": filer,
        "filer.port.grpc": filer_grpc,
        "filer.localSocket": str(folder / "filer.sock"),
        "s3": "true",
        "s3.port": s3,
        "s3.port.grpc": s3_grpc,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": str(folder / "s3.sock"),
        "s3.config": str(folder / "identity.json"),
        "s3.autoCreateBucket": "false",
    }
    weed = Path(sys.executable).with_name("weed")
    arguments = [f"-{name}={value}" for name, value in flags.items()]
    return [str(weed), "-logtostderr=true", "server", *arguments]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _wait_until_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until an object can be written: the gateway answers before its volumes are there."""
    client = server.client()
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            client.delete_object(Bucket="ready", Key="ready")
            client.delete_bucket(Bucket="ready")
            return
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
    raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text()[-4000:]}")
