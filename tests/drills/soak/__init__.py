"""Full load for a while: `tests/drills.sh soak`."""
