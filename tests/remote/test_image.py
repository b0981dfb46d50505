"""The image of transformers: what its Dockerfile installs is what this version needs."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement

import tar2tf_cli.remote
from readme import ROOT
from tar2tf_cli import __version__

FOLDER = Path(tar2tf_cli.remote.__file__).parent
PINNED = {
    line.name.lower().replace(".", "-"): line.specifier
    for line in map(Requirement, re.findall(r"^\w.*$", (FOLDER / "requirements.txt").read_text(), re.MULTILINE))
}


def test_every_dependency_is_pinned_to_a_version_that_is_allowed() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^(?:dependencies|etl) = \[\n((?:.*\n)*?)\]", project, re.MULTILINE)
    assert len(lists) == 2
    needed = [name for listed in lists for name in re.findall(r'^ +"([^"]+)"', listed, re.MULTILINE)]
    for line in map(Requirement, (name for name in needed if not name.startswith("tensorflow"))):
        (pin,) = PINNED[line.name.lower().replace(".", "-")]
        assert pin.operator == "=="
        assert line.specifier.contains(pin.version), line


def test_all_is_pinned_and_there_is_no_tensorflow() -> None:
    assert all([pin.operator for pin in pins] == ["=="] for pins in PINNED.values())
    assert not any("tensorflow" in name for name in PINNED)
    assert {"fastapi", "uvicorn", "httpx"} <= PINNED.keys()


def test_the_image_has_this_version() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert f"ARG TAR2TF=tar2tf-cli=={__version__}\n" in dockerfile
    assert f"docker build -t tar2tf:{__version__} " in dockerfile
    assert 'CMD ["tar2tf", "etl", "serve", "--host", "0.0.0.0"]' in dockerfile
