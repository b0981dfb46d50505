"""Making, finding and removing the transformers of a cluster that run conversions."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from tar2tf_cli.elsewhere.settings import ENVIRONMENT, Settings
from tar2tf_cli.errors import RemoteError, SourceError, UsageError
from tar2tf_cli.spec.version import __version__
from tar2tf_cli.spec.yaml_file import SpecFile
from tar2tf_cli.stores import ObjectInfo, open_source
from tar2tf_cli.stores.ais_etl import Transformers
from tar2tf_cli.stores.retries import Transient, persist

INIT_SECONDS: Final = 120.0
"""Seconds in which the pods of a transformer have to be ready; AIStore looks 64 times in that time."""

FOR_A_RUN: Final = "TAR2TF_ETL_FOR_A_RUN"
"""The variable of a transformer that was made for one run, and is deleted at its end."""

IMAGE: Final = "TAR2TF_IMAGE"
"""The variable that names the image of transformers; the default is what the Dockerfile in this folder is built as."""

_SERVE: Final = ("python", "-m", "tar2tf_cli", "etl", "serve")
_NAME: Final = re.compile("[a-z0-9][-a-z0-9]{4,30}[a-z0-9]")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LEAST_SECONDS: Final = 120.0
_BYTES_A_SECOND: Final = 2e6  # of an object, when its target is busy with others, too
_UNKNOWN_SIZE: Final = 1 << 30
_LOOK_AGAIN: Final = 0.5
_END_SECONDS: Final = 10.0  # in which a transformer is deleted
_ANY_BUCKET: Final = "ais://tar2tf"

T = TypeVar("T")


def object_seconds(inputs: Iterable[ObjectInfo] = ()) -> float:
    """How long a transformer may take for the largest of some objects."""
    sizes = [_UNKNOWN_SIZE if item.size is None else item.size for item in inputs]
    return _LEAST_SECONDS + max(sizes, default=_UNKNOWN_SIZE) // _BYTES_A_SECOND


def message(
    settings: Settings,
    *,
    name: str | None = None,
    image: str | None = None,
    comm: str = "hpush",
    init_seconds: float,
    seconds: float,
    for_a_run: bool = False,
) -> dict[str, Any]:
    """What a cluster needs to make a transformer.

    Args:
        settings: what the transformer does.
        name: its name; by default it follows from the settings and the version.
        image: the image of its pods; by default, that of the environment.
        comm: whether targets send requests to its pods (hpush), or refer clients to them (hpull).
        init_seconds: how long the pods may take to be ready.
        seconds: how long it may take for one object.
        for_a_run: whether it is deleted when the run ends that uses it.

    Raises:
        RemoteError: for a name that AIStore does not accept.
    """
    name = name or settings.name
    if not _NAME.fullmatch(name):
        raise RemoteError(
            f"{name!r} cannot be the name of a transformer",
            hint="use 6 to 32 lower-case letters, digits and hyphens, such as tar2tf-photos",
        )
    variables = {ENVIRONMENT: settings.text.replace("$", "\\u0024")}  # Kubernetes replaces $(NAME)
    if for_a_run:
        variables[FOR_A_RUN] = "1"
    pod = {
        "image": image or os.environ.get(IMAGE) or f"tar2tf:{__version__}",
        "command": _SERVE,
        "env": [{"name": key, "value": value} for key, value in variables.items()],
    }
    return {
        "name": name,
        "communication": f"{comm}://",
        "init_timeout": f"{init_seconds:g}s",
        "obj_timeout": f"{seconds:g}s",
        "support_direct_put": True,
        "runtime": pod,
    }


def init(transformers: Transformers, wanted: Mapping[str, Any]) -> None:
    """Make a transformer; one of that name that ended is deleted first, and so is one that Ctrl-C interrupts.

    Raises:
        RemoteError: when it cannot be made, or one of that name is there.
        SourceError: when the cluster does not answer.
    """
    name, asked = wanted["name"], False

    def make() -> None:
        nonlocal asked
        stage = transformers.stages().get(name)
        if asked and ready(transformers, name, stage):  # by another process, or the answer was lost
            return
        if stage == "Aborted":
            transformers.delete(name)
        elif stage and not asked:
            hint = f"use it as it is, or remove it with: tar2tf etl delete {name}"
            raise RemoteError(
                f"the transformer {name} already exists, and is {stage}", shard=transformers.where, hint=hint
            )
        asked = True
        transformers.make(wanted, seconds_of(wanted["init_timeout"]))

    try:
        transformers.store.persist(make, shard=transformers.where)
    except KeyboardInterrupt:
        if asked:
            delete(transformers, name)
        raise


def delete(transformers: Transformers, name: str) -> None:
    """Delete a transformer unless it is gone.

    Raises:
        SourceError: when the cluster does not answer.
    """
    with suppress(RemoteError):
        persist(lambda: transformers.delete(name), _END_SECONDS, shard=transformers.where)


def ready(transformers: Transformers, name: str, stage: str | None) -> bool:
    """Whether a transformer is running; one that is being made is waited for.

    Args:
        transformers: those of the cluster.
        name: its name.
        stage: its stage; None when there is none of that name.
    """
    deadline = time.monotonic() + INIT_SECONDS
    while stage == "Initializing" and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN)
        stage = transformers.stages().get(name)
    return stage == "Running"


def revive(transformers: Transformers, made_of: Mapping[str, Any]) -> None:
    """Start a transformer again, one of whose pods ended; other processes may do the same at the same time.

    Raises:
        Transient: when it cannot be started now.
    """
    name = made_of["name"]
    try:
        stage = transformers.stages().get(name)
        if stage == "Aborted":
            transformers.start(name)
        elif stage is None and FOR_A_RUN in variables_of(made_of):
            transformers.make(made_of, seconds_of(made_of["init_timeout"]))
    except (RemoteError, SourceError) as error:
        raise Transient(f"the transformer {name} is not running: {error.message}", transformers.where) from None


def settings_of(made_of: Mapping[str, Any]) -> str | None:
    """The settings of a transformer as text, by what it was made of; None if it is not one of tar2tf's."""
    text = variables_of(made_of).get(ENVIRONMENT)
    return None if text is None else text.replace("\\u0024", "$")


def variables_of(made_of: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a transformer's pods."""
    given = (made_of.get("runtime") or {}).get("env") or ()
    return {str(each.get("name")): str(each.get("value", "")) for each in given}


def seconds_of(duration: str) -> float:
    """The seconds of a duration as Go writes it, such as 1m30s."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|[hms])", duration))


def of_cluster(endpoint: str | None) -> Transformers:
    """The transformers of a cluster.

    Args:
        endpoint: the address of its proxy; AIS_ENDPOINT when None.
    """
    transformers = open_source(_ANY_BUCKET, endpoint=endpoint).transformers()
    assert transformers
    return transformers


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
        options: as for `message`.

    Returns:
        Its name, image, and time limits in seconds.

    Raises:
        UsageError: when the spec has problems.
        RemoteError: when the cluster cannot make it, or has a running one of that name.
        SourceError: when the cluster does not answer.
    """
    transformers, file = of_cluster(endpoint), SpecFile(spec)
    settings = Settings.of_file(file)
    init_seconds = INIT_SECONDS if init_seconds is None else init_seconds
    if seconds is None:
        seconds = object_seconds(_inputs(file.data.get("input") or {}, endpoint))
    wanted = message(settings, init_seconds=init_seconds, seconds=seconds, **options)
    init(transformers, wanted)
    image = wanted["runtime"]["image"]
    return {"name": wanted["name"], "image": image, "init_seconds": init_seconds, "object_seconds": seconds}


def _inputs(given: Mapping[str, Any], endpoint: str | None) -> list[ObjectInfo]:
    """The inputs that a spec names, if they are in a cluster and can be listed."""
    bucket, template = str(given.get("bucket", "")), given.get("template") or ()
    if bucket.startswith("ais"):
        with suppress(SourceError, UsageError):
            return open_source(bucket, endpoint=endpoint).list((template,) if isinstance(template, str) else template)
    return []
