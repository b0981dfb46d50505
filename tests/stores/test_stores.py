"""Every source passes one suite; what is special to HTTP and S3 comes after it. AIStore's is in test_aistore.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, Store
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.conversion import Conversion, Input, Output
from tar2tf_cli.spec.templates import from_aistore
from tar2tf_cli.stores import connection_options, open_store


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("p-@100-s", "p-{000..100}-s"),
        ("p-@00100", "p-{00000..00100}"),
        ("p-@2-g-@010-s", "p-{0..2}-g-{000..010}-s"),
        ("p-%06d.tar", "p-%06d.tar"),
        ("p-{0..3}@2", "p-{0..3}@2"),
        ("plain.tar", "plain.tar"),
    ],
)
def test_templates_of_aistore_are_read(theirs: str, ours: str) -> None:
    assert from_aistore(theirs) == ours


def test_help_does_not_need_any_sdk() -> None:
    imports = "import sys, tar2tf_cli.cli, tar2tf_cli.conversion.run"
    code = f"{imports}; print({{'requests', 'aistore', 'obstore', 'boto3'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("url", "output", "has_it"),
    [
        ("s3://in", "out", True),
        ("anything://in", "out", True),
        ("anything://in", "ais://out", False),
        ("ais://in", "s3://out", True),
        ("https://in", "s3://out", False),
        ("in", "s3://out", False),
    ],
)
def test_an_endpoint_is_that_of_a_cluster_or_of_each_bucket(url: str, output: str, has_it: bool) -> None:
    conversion = Conversion(url, Output(f"{output}/x.record"))
    found = connection_options(url, conversion, "http://host")["endpoint"]
    assert found == ("http://host" if has_it else None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry_for": "soon"}, "retry_for must be a number of seconds, 0 or more, not 'soon'"),
        ({"retry_for": -1}, "retry_for must be a number of seconds, 0 or more, not -1"),
        ({"retry_for": True}, "retry_for must be a number of seconds, 0 or more, not True"),
        ({"endpoint": 80}, "endpoint must be text or a path, not 80"),
    ],
)
def test_options_of_a_connection_are_checked(options: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store("http://127.0.0.1:1/x.tar", **options)
    assert str(caught.value) == words


def test_numbers_of_numpy_are_seconds() -> None:
    assert open_store("http://127.0.0.1:1/x.tar", retry_for=np.float32(0.5)).retry_for == 0.5  # type: ignore[arg-type]


class ReadOnly(Store):
    """A store of nothing."""

    def list(self, prefix: str) -> list[ObjectInfo]:
        return []

    def head(self, name: str) -> None:
        return None

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        raise NotImplementedError

    def locate(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    "write", [lambda store: store.put("x", "y"), lambda store: store.copy("x", "y"), lambda store: store.remove("x")]
)
def test_a_store_that_cannot_be_written_to_says_where_to_write(write: Callable[[Store], None]) -> None:
    with pytest.raises(UsageError) as caught:
        write(ReadOnly("mine://b/f", "f/"))
    found = caught.value
    assert (found.message, found.shard) == ("mine:// buckets cannot be written to", "mine://b/f")
    assert found.hint == "write to a folder, and copy its files there"


@pytest.mark.parametrize(
    ("output", "url", "unsigned"), [("s3://in", "s3://in", True), ("s3://in", "s3://out", False), ("in", "in", True)]
)
def test_only_the_input_is_read_without_credentials(output: str, url: str, unsigned: bool) -> None:
    conversion = Conversion(Input(output, no_sign_request=True), Output("s3://out/x.record"), retry_for=5)
    found = connection_options(url, conversion, None)
    assert found == {"endpoint": None, "retry_for": 5, "no_sign_request": unsigned}
