"""The shards of an AIStore bucket."""

from __future__ import annotations

from tar2tf_cli.stores.ais import AisStore
from tar2tf_cli.stores.ais_etl import Transformers
from tar2tf_cli.stores.objects import ObjectSource

__all__ = ["AisSource"]


class AisSource(ObjectSource):
    """The shards of a bucket whose cluster may have transformers, which make records of them."""

    _store: AisStore

    def transformers(self) -> Transformers:
        """Return those of the cluster."""
        return Transformers(self._store)
