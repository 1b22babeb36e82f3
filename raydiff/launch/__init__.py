"""Starts the Serve application for the command line and for jobs, and removes what it started."""

from raydiff.launch.application import RunningApp, running_app

__all__ = ["RunningApp", "running_app"]
