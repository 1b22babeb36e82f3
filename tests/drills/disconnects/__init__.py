"""How soon a client that goes away frees its slot: `tests/drills.sh disconnects`."""
