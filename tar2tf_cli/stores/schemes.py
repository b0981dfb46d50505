"""The stores by the beginnings of their URLs: a new one is a file in this folder, and a line of `_STORES`.

A store of another package is found by its entry point (`plugins.py`), if none here has its scheme.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tar2tf_cli.api.store import Store
from tar2tf_cli.errors import UsageError, alternatives
from tar2tf_cli.plugins import load_plugin, plugin_names

_STORES: Final = {
    "ais://": "ais:AisStore",
    "s3://": "cloud:S3Store",
    "gs://": "cloud:GcsStore",
    "az://": "cloud:AzureStore",
    "hf://datasets/": "hub:HubStore",
    "hf://buckets/": "hub_bucket:HubBucketStore",
    "http://": "web:HttpStore",
    "https://": "web:HttpStore",
}
"""The file and class of each store here, by the beginning of its URLs."""


def schemes(*, writable: bool = False) -> list[str]:
    """Return the URL schemes of buckets, such as `s3://`, of all stores or only of writable ones."""
    names = [*_STORES, *(f"{name}://" for name in plugin_names("stores"))]
    return [name for name in names if not writable or is_writable(store_class(name))]


def is_writable(kind: type[Store]) -> bool:
    """Whether objects can be uploaded to stores of a class."""
    return kind.put is not Store.put


def store_class(url: str) -> type[Store]:
    """Return the class of the store that a URL names.

    Raises:
        UsageError: for an unknown scheme.
    """
    scheme, _, rest = url.partition("://")
    beginning = f"{scheme.partition('+')[0]}://"
    if own := [name for name in _STORES if name.startswith(beginning)]:
        name = next((name for name in own if f"{beginning}{rest}".startswith(name)), own[0])  # which refuses other URLs
        file, _, kind = _STORES[name].partition(":")
        found: object = getattr(import_module(f"tar2tf_cli.stores.{file}"), kind)
    else:
        found = load_plugin("stores", scheme)
    if not (isinstance(found, type) and issubclass(found, Store)):
        hint = f"BUCKET is a directory, a tar file, - or starts with {alternatives(schemes())}"
        raise UsageError(f"{scheme}:// buckets are not supported", hint=hint)
    return found
