"""What the host has free. Knows no torch."""

from __future__ import annotations

_UNKNOWN_BYTES = 4 * 2**30


def available_bytes() -> int:
    """Bytes of memory that can still be allocated without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _UNKNOWN_BYTES
