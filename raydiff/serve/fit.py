"""Whether a model's weights fit the device of one replica."""

from __future__ import annotations

from raydiff.config import ModelSettings
from raydiff.engine.device import free_memory_bytes
from raydiff.errors import ModelError
from raydiff.models.loading import resolve_device
from raydiff.models.precision import resolve_precision
from raydiff.models.sizes import model_size


def check_fits(settings: ModelSettings) -> None:
    """Refuse a model that exceeds the replica's share of its device.

    Raises:
        ModelError: it does; the message gives the bytes needed and free.
    """
    device = resolve_device(settings.device)
    free = free_memory_bytes(device)
    if device.type == "cuda" and 0 < settings.num_gpus < 1:
        free = int(free * settings.num_gpus)
    size = model_size(settings.model, resolve_precision(settings.dtype, device))
    require_room(settings.served_name, size.weight_bytes, free, str(device))


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
