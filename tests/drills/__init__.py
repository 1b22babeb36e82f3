"""Fault drills: real runs on a real cluster, broken at random moments, judged by their files."""
