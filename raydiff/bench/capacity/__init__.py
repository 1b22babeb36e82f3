"""Capacity: what a corpus will take, before it is run."""
