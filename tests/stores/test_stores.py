"""Every source passes one suite; what is special to HTTP and S3 comes after it. AIStore's is in test_aistore.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.templates import from_aistore
from tar2tf_cli.stores import open_source


def test_a_missing_extra_is_answered_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, extra in (("s3fs", "s3"), ("gcsfs", "gcs")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UsageError, match="extra") as caught:
            open_source(f"{'s3' if extra == 's3' else 'gs'}://bucket").list(["x.tar"])
        assert caught.value.hint == f"pip install 'tar2tf-cli[{extra}]'"


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
    code = f"{imports}; print({{'requests', 'aistore', 'fsspec'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
