"""The image of the command, the conda recipe and the Kubernetes Job: their steps are run here, without a builder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from commands import tar2tf
from kernel_build import COMPILED_QUICKLY
from readme import ROOT
from shards import PHOTOS
from tar2tf_cli import __version__

DEPLOY = ROOT / "docs" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()

pytestmark = [pytest.mark.xdist_group("packages"), pytest.mark.on_disk]


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The folder of the commands of a new environment, in which the packages of this one are installed, too."""
    has_pip = find_spec("pip") is not None  # to install another takes four seconds
    options = ["--without-pip"] if has_pip else []
    subprocess.run([sys.executable, "-m", "venv", *options, tmp_path / "venv"], check=True, timeout=120)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    here = [path for path in sys.path if path.endswith("site-packages")]
    (site / "here.pth").write_text("\n".join(here))
    commands = tmp_path / "venv" / "bin"
    if has_pip:
        (commands / "pip").write_text(f'#!/bin/sh\nexec "{commands}/python" -m pip "$@"\n')
        (commands / "pip").chmod(0o755)
    return commands


def copy_of_context(folder: Path) -> None:
    """Copy what a builder gets: all that the ignore file beside the Dockerfile excepts, without its last patterns."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    kept = [line[1:] for line in lines if line.startswith("!")]
    ignored = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    folder.mkdir()
    for name in kept:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*ignored))
        else:
            shutil.copy(ROOT / name, folder / name)


def test_the_steps_of_the_image_make_a_command_that_works(python: Path, tmp_path: Path) -> None:
    """Apart from apt-get, for which one has to be root; pip may not use a network here."""
    steps = [step for step in instructions("RUN") if "apt-get" not in step]
    assert len(steps) == 2
    copy_of_context(tmp_path / "source")
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1", "PIP_FORCE_REINSTALL": "1"}
    environment = {**os.environ, **COMPILED_QUICKLY, **offline, "PATH": f"{python}:{os.environ['PATH']}"}
    for step in steps:
        command = step.replace("/source", f"{tmp_path}/source").replace("/wheels", f"{tmp_path}/wheels")
        subprocess.run(["sh", "-ec", command], env=environment, cwd=tmp_path, timeout=200, check=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.startswith("tar2tf_cli-")
    (entry,) = instructions("ENTRYPOINT")
    assert entry == '["tar2tf"]'
    output = tmp_path / "x.record"
    subprocess.run([python / "tar2tf", "convert", PHOTOS, "-o", output, "-q"], check=True, timeout=100, cwd=tmp_path)
    assert output.stat().st_size
    where = subprocess.run(
        [python / "python", "-c", "import tar2tf_cli; print(tar2tf_cli.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=tmp_path,
    )
    assert Path(where.stdout.strip()).is_relative_to(tmp_path)


def test_the_image_is_small_and_not_run_as_root() -> None:
    assert all("slim" in image for image in instructions("FROM"))
    assert instructions("USER") == ["65534:65534"]
    assert "--only-binary :all:" in DOCKERFILE


RECIPE = YAML(typ="safe").load(DEPLOY / "recipe.yaml")
NAMES_OF_CONDA = {"isal": "python-isal", "opencv-python-headless": "py-opencv", "xxhash": "python-xxhash"}


def test_the_conda_recipe_renders_to_what_the_package_needs() -> None:
    rattler_build = pytest.importorskip("rattler_build")
    compilers = {"c_compiler": ["gcc"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.17"]}
    recipe = rattler_build.Stage0Recipe.from_file(DEPLOY / "recipe.yaml")
    (rendered,) = recipe.render(rattler_build.VariantConfig(compilers))
    project = (ROOT / "pyproject.toml").read_text().partition("test = [")[0]
    needed = re.findall(r'^  "([\w.-]+)(>=[\w.]+)"', project, re.MULTILINE)
    wanted = {f"{NAMES_OF_CONDA.get(name, name)} {version}" for name, version in needed}
    requirements = rendered.recipe.requirements.to_dict()
    (python,) = re.findall('requires-python = "(.*)"', project)
    assert {*requirements["run"], *requirements["run_constraints"]} == {*wanted, f"python {python}"}
    assert [item.partition(" ")[0] for item in requirements["run_constraints"]] == ["tensorflow"]
    assert rendered.recipe.package.version == __version__
    assert f"license-files = {json.dumps(RECIPE['about']['license_file'])}" in project


def test_the_script_of_the_conda_recipe_installs_the_command_without_tensorflow(python: Path) -> None:
    script = RECIPE["build"]["script"]
    command = script["content"].replace("${{ PYTHON }}", str(python / "python"))
    environment = {**os.environ, **COMPILED_QUICKLY, "PIP_NO_INDEX": "1", "PIP_FORCE_REINSTALL": "1"}
    subprocess.run(["sh", "-ec", command], env=environment, cwd=ROOT, timeout=200, check=True, capture_output=True)
    for line in (line for test in RECIPE["tests"] for line in test.get("script", [])):
        subprocess.run(["sh", "-ec", f"{python}/{line}"], timeout=100, check=True)
    (metadata,) = python.parent.glob("lib/python*/site-packages/tar2tf_cli-*/METADATA")
    assert "Requires-Dist: numpy" in metadata.read_text()
    assert not re.search("Requires-Dist: tensorflow>(?!.*extra)", metadata.read_text())


def test_the_job_asks_for_what_the_command_can_do(tmp_path: Path) -> None:
    job = YAML(typ="safe").load(DEPLOY / "job.yaml")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = [argument.replace("s3://bucket/shards", str(PHOTOS)) for argument in container["args"]]
    arguments = [argument.replace("s3://bucket/records", str(tmp_path)) for argument in arguments]
    arguments = [argument.replace("train-*.tar", "photos-*.tar") for argument in arguments]
    assert arguments != container["args"]
    done = tar2tf(*arguments)
    assert done.returncode == 0, done.stderr
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [1, 2]
    assert pod["restartPolicy"] == "Never"  # a Job with such a policy accepts no other
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
