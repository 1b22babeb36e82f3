"""The device's resources: free memory and CPU threads."""

from __future__ import annotations

import torch


def set_threads(threads: int) -> None:
    """Let torch use this many CPU threads in this process."""
    torch.set_num_threads(threads)


def free_memory_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on `device`; for the CPU, memory the system has free."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _available_host_bytes()


def _available_host_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 4 * 2**30
