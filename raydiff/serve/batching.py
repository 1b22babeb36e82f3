"""The gateway's part in batches: routes, and a thread that looks after those that are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raydiff.batches.attending import Attendance
from raydiff.batches.jobs import RayJobs
from raydiff.batches.keeper import Keeper
from raydiff.batches.store import BatchStore
from raydiff.config import AppSettings
from raydiff.serve.access import Access
from raydiff.serve.api import RouteGroup
from raydiff.serve.batch_routes import BatchesOff, BatchModel, BatchRoutes
from raydiff.serve.file_routes import FileRoutes
from raydiff.serve.served import ServedModel


def batch_groups(
    settings: AppSettings, served: Mapping[str, ServedModel], access: Access, app_name: str
) -> tuple[Sequence[RouteGroup], Attendance | None]:
    """Routes of files and batches, and who looks after them, not yet started; where they are off,
    routes that say so and nobody.

    Raises:
        InputError: there is no store of that kind.
    """
    if settings.batches is None:
        return [BatchesOff(access=access)], None
    store = BatchStore(settings.batches)
    keeper = Keeper(store, RayJobs(settings.batches))
    attendance = Attendance(keeper, every_s=settings.batches.poll_s)
    models = {
        model.served_name: BatchModel(
            checkpoint=model.model, fingerprint=served[model.served_name].fingerprint
        )
        for model in settings.models
    }
    routes = BatchRoutes(
        store=store,
        access=access,
        attendant=attendance,
        models=models,
        app_name=app_name,
        max_body_bytes=settings.max_body_bytes,
    )
    return [FileRoutes(store=store, access=access), routes], attendance
