"""The ASGI application: groups of routes in front of the models, without Serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.types import ASGIApp

from raydiff.config import AccessSettings
from raydiff.serve.access import Access, OpenAccess
from raydiff.serve.access.log import RequestLog
from raydiff.serve.access.sizes import HeaderLimit
from raydiff.serve.documentation import Documentation
from raydiff.serve.generation import TextRoutes
from raydiff.serve.health import HealthRoutes
from raydiff.serve.model_routes import ModelRoutes
from raydiff.serve.refusals import HANDLERS
from raydiff.serve.request_ids import RequestIds
from raydiff.serve.served import ServedModel, ServedModels
from raydiff.serve.tokenizing import TokenRoutes


class RouteGroup(Protocol):
    """Routes that belong together, and what the documentation says of them."""

    def add_to(self, app: Starlette) -> None:
        """Add the routes."""

    def paths(self) -> Mapping[str, Any]:
        """OpenAPI's path items, by path."""


class TextApi:
    """The endpoints, without Serve."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        *,
        request_timeout_s: float,
        max_body_bytes: int,
        access: Access | None = None,
        settings: AccessSettings | None = None,
        groups: Sequence[RouteGroup] = (),
    ) -> None:
        """`access` decides who is served, by default everyone; of `settings` it reads what
        requests may ask for, and what is logged of them; `groups` are further routes."""
        self._settings = settings or AccessSettings()
        served, access = ServedModels(models), access or OpenAccess(self._settings)
        self._groups: list[RouteGroup] = [
            TextRoutes(
                models=served,
                access=access,
                request_timeout_s=request_timeout_s,
                max_timeout_s=self._settings.max_timeout_s,
                max_body_bytes=max_body_bytes,
            ),
            ModelRoutes(models=served, access=access),
            TokenRoutes(models=served, access=access, max_body_bytes=max_body_bytes),
            HealthRoutes(models=served),
            *groups,
        ]

    def app(self, *, answer_ids: bool = True) -> ASGIApp:
        """The ASGI application. `answer_ids` as in `RequestIds`."""
        app = Starlette(exception_handlers=HANDLERS)
        app.router.redirect_slashes = False
        paths: dict[str, Any] = {}
        for group in self._groups:
            group.add_to(app)
            paths.update(group.paths())
        Documentation(paths).add_to(app)
        limited = HeaderLimit(app, self._settings.max_header_bytes)
        return RequestLog(RequestIds(limited, answers=answer_ids), self._settings)
