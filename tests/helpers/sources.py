"""Suites of the stores here: those that are shipped, and what is special to connections without TLS."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from servers import cutting_proxy
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_source
from tar2tf_cli.testing import SourceSuite, StoreSuite
from tar2tf_cli.testing.shards import read_all


class BucketSuite(SourceSuite, StoreSuite):
    """Both suites of a store that is reached by URLs; a subclass gives what `SourceSuite` asks for."""

    @pytest.fixture
    def url(self, bucket: str) -> str:
        return bucket

    def upload(self, url: str, name: str, path: str) -> None:
        self.put(url, name, Path(path).read_bytes())


class PlainSuite:
    """What a store must see to where the connection does not: over HTTP, without TLS."""

    def address(self) -> str:
        """The store's URL."""
        raise NotImplementedError

    @pytest.mark.parametrize("at", [10_000, 300_000, 1_050_000])
    def test_a_byte_swapped_on_the_way_is_an_error(self, bucket: str, at: int) -> None:
        data, url = os.urandom(1_050_000), self.address()
        self.put(bucket, "x 1.tar" if "az:" not in bucket else "x.tar", data)  # type: ignore[attr-defined]
        cuts = [(at, "swap")]
        own = urlsplit(url).port or 0
        with cutting_proxy(own, cuts) as port:
            source = open_source(bucket, endpoint=url.replace(f":{own}", f":{port}"))
            (item,) = source.list(["x*.tar"])
            with pytest.raises(SourceError, match="the bytes received have the checksum"):
                read_all(source, item)
            assert not cuts
            assert read_all(source, item) == data
