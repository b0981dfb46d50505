"""The wheel and what it installs, without TensorFlow, and an sdist that has its tests."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from kernel_build import COMPILED_QUICKLY
from readme import ROOT
from shards import PHOTOS
from tar2tf_cli import __version__
from tar2tf_cli.cli import all_commands

pytestmark = [pytest.mark.xdist_group("packages"), pytest.mark.on_disk]

COMMANDS = [name.replace(" ", "-") for name in all_commands()]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(kind: str, folder: Path, **environment: str) -> Path:
    environment = {**COMPILED_QUICKLY, **environment}
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=ROOT, **environment)
    (path,) = folder.iterdir()
    return path


def installed_from(wheel: Path, prefix: Path) -> Path:
    """A prefix into which pip installed a wheel, without dependencies."""
    pytest.importorskip("pip", reason="there is no pip")
    options = ["--quiet", "--no-index", "--no-deps", "--ignore-installed", "--no-compile", "--prefix", prefix]
    run(sys.executable, "-m", "pip", "install", *options, wheel, cwd=prefix, PIP_DISABLE_PIP_VERSION_CHECK="1")
    return prefix


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_from(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the sdist unpacks to."""
    folder = tmp_path_factory.mktemp("sdist")
    run("tar", "-xf", built("sdist", folder), cwd=folder)
    return folder / f"tar2tf_cli-{__version__}"


def test_the_description_says_nothing_that_pypi_cannot_show(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    (name,) = [name for name in files.namelist() if name.endswith("METADATA")]
    described = email.message_from_bytes(files.read(name))
    assert described["Description-Content-Type"] == "text/markdown"
    text = files.read(name).decode().partition("\n\n")[2]
    assert text.startswith("# tar2tf\n")
    assert "```text\n$ tar2tf inspect shards\n" in text
    assert "\nOK: 3 files, 24 records, " in text
    assert not re.findall(r"\]\((?!https?://)", text)


def test_the_wheel_has_the_whole_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tar2tf_cli").rglob("*") if path.is_file()}
    left_out = (".pyc", ".so") if os.environ.get("TAR2TF_PURE") else ".pyc"
    assert {name for name in package if not name.endswith(left_out)} <= names
    licenses = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licenses == {"LICENSE", "tar2tf_cli/features/imagenet.LICENSE.txt"}


def test_the_wheel_brings_completions_man_pages_and_the_schema(installed: Path) -> None:
    share = installed / "share"
    for shell, path in {
        "bash": "bash-completion/completions/tar2tf",
        "zsh": "zsh/site-functions/_tar2tf",
        "fish": "fish/vendor_completions.d/tar2tf.fish",
    }.items():
        assert (share / path).read_text() == (ROOT / "completions" / f"tar2tf.{shell}").read_text()
    pages = {path.name for path in (share / "man" / "man1").iterdir()}
    assert pages == {"tar2tf.1", *(f"tar2tf-{name}.1" for name in COMMANDS)}
    assert (share / "tar2tf" / "spec.schema.json").read_text() == (ROOT / "docs" / "spec.schema.json").read_text()
    assert (installed / "bin" / "tar2tf").exists()


def test_the_metadata_names_the_license_and_no_url_that_does_not_exist(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    metadata = archive.read(name).decode()
    assert "\nLicense-Expression: MIT\n" in metadata
    assert "\nProject-URL: " not in metadata
    assert "\nHome-page: " not in metadata


def closure(requirements: list[str]) -> Iterator[Distribution]:
    """The distributions that pip would install for these requirements here."""
    from packaging.requirements import Requirement

    seen: set[str] = set()
    waiting = [(Requirement(line), "") for line in requirements]
    while waiting:
        needed, extra = waiting.pop()
        if needed.name in seen or (needed.marker and not needed.marker.evaluate({"extra": extra})):
            continue
        seen.add(needed.name)
        found = distribution(needed.name)
        assert needed.specifier.contains(found.version, prereleases=True), needed
        yield found
        for line in found.requires or ():
            waiting += [(Requirement(line), name) for name in (needed.extras or {""})]


def test_without_an_extra_everything_but_datasets_works(installed: Path, tmp_path: Path) -> None:
    """The wheel and its dependencies without extras, taken from this environment."""
    (tmp_path / "site").mkdir()
    (package,) = installed.glob("lib/python*/site-packages")
    (own,) = (Distribution.at(path) for path in package.glob("*.dist-info"))
    site = tmp_path / "site"
    for found in (own, *closure([*(own.requires or ()), "pip"])):
        for top in {path.parts[0] for path in found.files or () if path.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).is_symlink():
                (site / top).symlink_to(found.locate_file(top))
    assert run(sys.executable, "-S", "-m", "pip", "check", cwd=tmp_path, PYTHONPATH=str(site)).startswith("No broken")
    script = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from tar2tf_cli.cli import cli\n"
        "try:\n    import tensorflow\nexcept ImportError:\n    pass\nelse:\n    sys.exit('tensorflow is there')\n"
        "from tar2tf_cli import convert, inspect, verify, Conversion\n"
        f"options = dict(ops=['decode:jpg,3', 'resize:jpg,8x8', 'cast:jpg,uint8'], types='cls=int64')\n"
        f"summary = convert(Conversion({str(PHOTOS)!r}, 'out/x-<>.record', **options), workers=1)\n"
        "assert verify(summary.manifest, workers=1).ok\n"
        "assert inspect('out', workers=1).samples == 24\n"
        "from tar2tf_cli import AisDataset, Dataset, default_record_parser, load_dataset, open_records\n"
        "from tar2tf_cli.recorder import generate_dataset\n"
        "assert len(open_records('out')) == 24\n"
        f"photos = {str(PHOTOS)!r}\n"
        "for load in (\n"
        "    lambda: load_dataset('out'), lambda: Dataset(photos).load('photos-0.tar'),\n"
        "    lambda: default_record_parser(b''),\n"
        "    lambda: AisDataset(photos).load_from_tar('photos-0.tar', path='y.record'),\n"
        "    lambda: generate_dataset('out'),\n"
        "):\n"
        "    try:\n        load()\n        sys.exit('it loads')\n"
        "    except Exception as error:\n        print(error)\n"
    )
    said = run(sys.executable, "-S", "-c", script, cwd=tmp_path, PYTHONPATH=str(site)).splitlines()
    needs = " needs TensorFlow, which is not installed; pip install 'tar2tf-cli[tensorflow]'; "
    assert [line.partition(needs)[:2] for line in said] == [
        (face, needs)
        for face in ("load_dataset", "Dataset in memory", "default_record_parser", "load_from_tar", "generate_dataset")
    ]
    assert not (tmp_path / "y.record").exists()


def test_the_sdist_has_every_file_of_the_repository(unpacked: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not the repository")
    wanted = set(run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines())
    found = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert wanted == found - {"PKG-INFO"}


def test_the_sdist_passes_tests_of_its_own(unpacked: Path) -> None:
    files = ["tests/test_rooms.py", "tests/spec/test_fields.py", "tests/cli/test_help.py"]
    options = ["-q", "-p", "no:cacheprovider", "-n", "0"]
    printed = run(sys.executable, "-m", "pytest", *options, *files, cwd=unpacked, PYTHONPATH=str(unpacked))
    assert re.search(r"\d+ passed in ", printed)
    assert "failed" not in printed


def test_a_page_of_the_manual_is_found_beside_the_command(installed: Path) -> None:
    if not shutil.which("man"):
        pytest.skip("there is no man")
    path = f"{installed}/bin:{os.environ['PATH']}"
    assert run("man", "-w", "tar2tf-convert", cwd=installed, PATH=path, MANPATH="").strip().startswith(str(installed))
