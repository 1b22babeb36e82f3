"""Whether a model's weights fit the device of one replica."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

from raydiff.config import ModelSettings
from raydiff.engine.device import free_memory_bytes
from raydiff.errors import ModelError
from raydiff.families import model_path
from raydiff.models.loading import resolve_device, resolve_dtype

_HEADER_LENGTH = struct.Struct("<Q")


def check_fits(settings: ModelSettings) -> None:
    """Refuse a model that exceeds the replica's share of its device.

    Raises:
        ModelError: it does; the message gives the bytes needed and free.
    """
    device = resolve_device(settings.device)
    free = free_memory_bytes(device)
    if device.type == "cuda" and 0 < settings.num_gpus < 1:
        free = int(free * settings.num_gpus)
    needed = weight_bytes(
        model_path(settings.model), resolve_dtype(settings.dtype, device).itemsize
    )
    require_room(settings.served_name, needed, free, str(device))


def require_room(model: str, needed_bytes: int, free_bytes: int, device: str) -> None:
    """Refuse `model` when its weights need more bytes than a replica has.

    Raises:
        ModelError: they do.
    """
    if needed_bytes > free_bytes:
        raise ModelError(
            f"model {model!r}: its weights need {needed_bytes} bytes, and a replica has "
            f"{free_bytes} bytes on device {device!r}. Give it a larger device or a smaller "
            "dtype; one replica over several devices is not supported."
        )


def weight_bytes(checkpoint: Path, bytes_per_value: int) -> int:
    """Bytes of a checkpoint's weights at a width, read from the safetensors headers alone."""
    return bytes_per_value * sum(
        prod(entry["shape"])
        for file in sorted(checkpoint.glob("*.safetensors"))
        for name, entry in _header(file).items()
        if name != "__metadata__"
    )


def _header(file: Path) -> dict[str, dict[str, list[int]]]:
    with file.open("rb") as stream:
        try:
            (length,) = _HEADER_LENGTH.unpack(stream.read(_HEADER_LENGTH.size))
            header: dict[str, dict[str, list[int]]] = json.loads(stream.read(length))
        except (struct.error, ValueError, MemoryError, OverflowError) as error:
            raise ModelError(f"{file}: expected a safetensors file: {error}.") from error
    return header
