"""Measurements: the engine against plain references, the whole path, step sweeps, reports."""
