"""Every source passes one suite; what is special to HTTP and S3 comes after it. AIStore's is in test_aistore.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.spec.templates import from_aistore
from tar2tf_cli.stores import connection_options


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
