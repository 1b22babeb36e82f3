"""An application found running is used only if its model is the one that is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from raydiff.config import EngineSettings, ModelSettings
from raydiff.errors import ClusterError
from raydiff.launch.alike import require_alike
from raydiff.serve.versions import user_config


def found(model: ModelSettings) -> dict[str, Any]:
    return user_config(model)


def test_the_same_checkpoint_is_used_whatever_its_capacity(tiny_checkpoint: Path) -> None:
    running = ModelSettings(
        model=str(tiny_checkpoint), max_replicas=7, dtype="fp32", engine=EngineSettings(max_rows=9)
    )
    asked = ModelSettings(model=f"{tiny_checkpoint}/", engine=EngineSettings(threads=3))
    require_alike(asked, found(running), "app")


def test_a_copy_of_the_checkpoint_is_the_same_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    asked = ModelSettings(model=str(copy))
    require_alike(asked, found(ModelSettings(model=str(tiny_checkpoint))), "app")


def test_another_checkpoint_of_the_same_name_is_refused(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny_checkpoint, tmp_path / tiny_checkpoint.name)
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    with pytest.raises(ClusterError, match=r"serves another model.*RAY_ADDRESS=local"):
        require_alike(
            ModelSettings(model=str(other)),
            found(ModelSettings(model=str(tiny_checkpoint))),
            "app",
        )


def test_a_checkpoint_that_changed_since_it_was_loaded_is_refused(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    place = shutil.copytree(tiny_checkpoint, tmp_path / "model")
    model = ModelSettings(model=str(place))
    running = found(model)
    with (place / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    with pytest.raises(ClusterError, match="have changed since it was loaded"):
        require_alike(model, running, "app")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (ModelSettings(dtype="bf16"), "dtype 'fp32', not 'bf16'"),
        (ModelSettings(engine=EngineSettings(max_rows=3)), "engine.max_rows 9, not 3"),
        (ModelSettings(model="random:tiny-sdar", name="summarizer"), "model 'summarizer', not"),
    ],
)
def test_what_the_job_names_must_be_so(asked: ModelSettings, named: str) -> None:
    running = ModelSettings(dtype="fp32", engine=EngineSettings(max_rows=9))
    with pytest.raises(ClusterError, match=named):
        require_alike(asked, found(running), "app")


def test_an_application_that_does_not_say_is_used() -> None:
    require_alike(ModelSettings(), None, "app")
