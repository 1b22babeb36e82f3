"""The device's resources: free memory and CPU threads."""

from __future__ import annotations

import torch

from raydiff.engine.host import available_bytes


def set_threads(threads: int) -> None:
    """Let torch use this many CPU threads in this process."""
    torch.set_num_threads(threads)


def free_memory_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`; for the CPU, memory the system has free."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_bytes()
