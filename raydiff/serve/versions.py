"""Which deployments a changed config restarts: those whose own settings changed, and no others.

Serve gives every deployment of an application one version, made of the application's arguments as a
whole: a model added to a config would restart the replicas of all models. A deployment that carries
a version of its own keeps its replicas for as long as that stays the same.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr
from ray.serve import Deployment
from ray.serve._private.config import DeploymentConfig

from raydiff.config import AppSettings, ModelSettings
from raydiff.version import __version__

_SCALE = {
    "autoscaling",
    "batch_only",
    "documents_per_call",
    "max_replicas",
    "min_replicas",
    "stall_s",
    "update_surge_percent",
}
"""What Serve and `Replica.reconfigure` change on running replicas."""
_PIECE_BYTES = 2**20


class VersionedConfig(DeploymentConfig):  # type: ignore[misc]  # Ray has no complete types
    """A deployment's options with a version that Serve does not overwrite."""

    _version: str = PrivateAttr("")

    @classmethod
    def of(cls, options: DeploymentConfig, version: str) -> VersionedConfig:
        """The same options, under `version`."""
        values = {name: getattr(options, name) for name in cls.model_fields}
        config: VersionedConfig = cls.model_construct(set(options.model_fields_set), **values)
        config._version = version
        return config

    def to_proto(self) -> Any:
        """What the controller gets: the last step of every way to deploy."""
        self.version = self._version
        return super().to_proto()


def versioned(deployment: Deployment, version: str) -> Deployment:
    """The deployment, restarted by a config that changes `version` and by no other."""
    config = VersionedConfig.of(deployment._deployment_config, version)
    return Deployment(deployment.name, config, deployment._replica_config, _internal=True)


def model_version(model: ModelSettings) -> str:
    """The version of a model's replicas: all that would make them another engine."""
    return _digest(model.model_dump_json(exclude=_SCALE), checkpoint_digest(model.model))


def user_config(model: ModelSettings) -> dict[str, Any]:
    """What `Replica.reconfigure` gets, and what tells others how the model was loaded."""
    digest = checkpoint_digest(model.model)
    return {"settings": model.model_dump(mode="json"), "checkpoint": digest}


def gateway_version(settings: AppSettings) -> str:
    """The version of the gateway, which knows of every model what requests are checked against."""
    models = [
        (m.model_dump_json(), checkpoint_digest(m.model), m.served_name) for m in settings.models
    ]
    return _digest(settings.model_dump_json(exclude={"models"}), repr(models))


def checkpoint_digest(model: str) -> str:
    """Tells a checkpoint's directory from one of other contents; empty for a model with a name.

    Of large files it reads the beginning and the end, not all of the weights.
    """
    folder = Path(model)
    if not folder.is_dir():
        return ""
    total = hashlib.sha256()
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        size = file.stat().st_size
        total.update(f"{file.name} {size} ".encode())
        with file.open("rb") as content:
            total.update(content.read(_PIECE_BYTES))
            content.seek(max(_PIECE_BYTES, size - _PIECE_BYTES))
            total.update(content.read(_PIECE_BYTES))
    return total.hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join((__version__, *parts)).encode()).hexdigest()
