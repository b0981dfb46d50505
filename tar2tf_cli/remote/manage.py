"""The transformers of a cluster as `tar2tf etl` makes, lists and ends them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.remote import deploy
from tar2tf_cli.remote.settings import Settings
from tar2tf_cli.spec import yaml_file
from tar2tf_cli.spec.reach import wanted_retry_for
from tar2tf_cli.stores import ObjectInfo, open_source
from tar2tf_cli.stores.ais import AisStore
from tar2tf_cli.stores.ais_etl import Transformers

__all__ = ["ask", "init_for_spec", "of_cluster"]

_ANY_BUCKET: Final = "ais://tar2tf"

T = TypeVar("T")


def of_cluster(endpoint: str | None) -> Transformers:
    """The transformers of a cluster.

    Args:
        endpoint: the address of its proxy; AIS_ENDPOINT when None.
    """
    if not (endpoint or os.environ.get("AIS_ENDPOINT")):
        raise UsageError("no cluster is given", hint="pass --endpoint http://PROXY:PORT or set AIS_ENDPOINT")
    store = AisStore(_ANY_BUCKET, endpoint)
    store.retry_for = wanted_retry_for(None)
    return store.transformers()


def ask(endpoint: str | None, request: Callable[[Transformers], T]) -> T:
    """What a cluster answers to a request about its transformers, with retries.

    Args:
        endpoint: the address of its proxy; AIS_ENDPOINT when None.
        request: sends it.
    """
    transformers = of_cluster(endpoint)
    return transformers.store.persist(lambda: request(transformers), shard=transformers.where)


def init_for_spec(
    spec: str, endpoint: str | None = None, *, init_seconds: float | None, seconds: float | None, **options: Any
) -> dict[str, Any]:
    """Make a transformer for a spec file.

    Args:
        spec: the file; `-` is standard input.
        endpoint: the address of the cluster's proxy; AIS_ENDPOINT when None.
        init_seconds: how long its pods may take to be ready.
        seconds: how long it may take for one object; by default, that depends on the size of the largest input.
        options: as for `deploy.message`.

    Returns:
        Its name, image, and time limits in seconds.

    Raises:
        UsageError: when the spec has problems.
        RemoteError: when the cluster cannot make it, or has a running one of that name.
        SourceError: when the cluster does not answer.
    """
    transformers, (document, spec_error) = of_cluster(endpoint), yaml_file.load(spec)
    settings = Settings.of_document(document, spec_error)
    init_seconds = deploy.INIT_SECONDS if init_seconds is None else init_seconds
    if seconds is None:
        seconds = deploy.object_seconds(_inputs(document.get("input") or {}, endpoint))
    wanted = deploy.message(settings, init_seconds=init_seconds, seconds=seconds, **options)
    deploy.init(transformers, wanted)
    image = wanted["runtime"]["image"]
    return {"name": wanted["name"], "image": image, "init_seconds": init_seconds, "object_seconds": seconds}


def _inputs(given: Mapping[str, Any], endpoint: str | None) -> list[ObjectInfo]:
    """The inputs that a spec names, if they are in a cluster and can be listed."""
    bucket, template = str(given.get("bucket", "")), given.get("template") or ()
    if bucket.startswith("ais"):
        with contextlib.suppress(SourceError, UsageError):
            return open_source(bucket, endpoint=endpoint).list((template,) if isinstance(template, str) else template)
    return []
