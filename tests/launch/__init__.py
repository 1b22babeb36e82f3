"""Tests of `raydiff.launch`."""
