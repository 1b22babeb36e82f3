"""Networks by name: one family's does not bring in the others'."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from raydiff.families.recognition import FAMILIES
from raydiff.models.networks import NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_can_be_built_and_wrapped(name: str) -> None:
    file = import_module(NETWORKS[name].module)
    assert callable(file.build)
    assert callable(file.wrap)


def test_every_family_runs_on_a_network_that_exists() -> None:
    assert {family.network for family in FAMILIES} <= NETWORKS.keys()


def test_a_network_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys; from raydiff.models.networks import NETWORKS; "
        "print([k.module for k in NETWORKS.values() if k.module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
