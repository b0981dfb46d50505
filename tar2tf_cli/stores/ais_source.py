"""The shards of an AIStore bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tar2tf_cli.stores.objects import ObjectSource

if TYPE_CHECKING:
    from tar2tf_cli.stores.ais import AisStore
    from tar2tf_cli.stores.ais_etl import Transformers


class AisSource(ObjectSource):
    """The shards of a bucket whose cluster may have transformers, which make records of them."""

    _store: AisStore

    def transformers(self) -> Transformers:
        """Return those of the cluster."""
        from tar2tf_cli.stores.ais_etl import Transformers

        return Transformers(self._store)
