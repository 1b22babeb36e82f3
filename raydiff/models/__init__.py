"""Checkpoints and denoisers."""
