"""Faults of a serving fleet under load: `tests/drills.sh serving`."""
