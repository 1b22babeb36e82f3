"""Fleets of simulated replicas: how their number follows a load, and what each costs to run.

A simulated replica sleeps where a real one computes, so that two cores hold many.
"""
