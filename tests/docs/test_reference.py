"""The reference knows every key, op and variable, and its examples run."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shards import tree
from tar2tf_cli import Conversion, Input, Output, convert
from tar2tf_cli.cli import cli
from tar2tf_cli.features.feature_map import TYPES
from tar2tf_cli.ops import OPS, parse_op
from tar2tf_cli.plugins import preset_names
from tar2tf_cli.stores.cloud import AzureStore, GcsStore, S3Store

pytestmark = pytest.mark.xdist_group("pages")

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"
PHOTOS = DOCS.parent / "tests" / "data"
TESTED_ELSEWHERE = {"three-ways.md", "extending.md"}
WITH_EXAMPLES = sorted(
    page.name
    for page in REFERENCE.glob("*.md")
    if page.name not in TESTED_ELSEWHERE and re.search("^```(sh|yaml|python)", page.read_text("utf-8"), re.MULTILINE)
)


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """The cells of the table rows below a heading, up to the next heading."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert section, f"{page} has no heading {heading!r}"
    for line in section[1].splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield [html.unescape(re.sub("</?code>", "`", cell.strip())) for cell in line.split("|")[1:-1]]


def names(page: str, heading: str) -> set[str]:
    """What the first cells of a table name."""
    return {name for row in rows(page, heading) for name in re.findall(r"`([^`]+)`", row[0])}


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """The sample shards as `shards` in the folder in which pages are run."""
    folder = tmp_path / "work" / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    for path in PHOTOS.glob("*.tar*"):
        shutil.copy(path, folder)
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_of_a_page_run_in_order_on_the_data_of_the_recipes(
    page: str, data: Path, run_page: Callable[..., Path]
) -> None:
    run_page(f"reference/{page}")


@pytest.mark.parametrize(("heading", "spec"), [("Top level", Conversion), ("input", Input), ("output", Output)])
def test_the_spec_page_has_every_key_with_its_default(heading: str, spec: type) -> None:
    in_python_only = {"record_to_example", "example_ops"}
    fields = {field.name: field for field in dataclasses.fields(spec) if field.name not in in_python_only}
    if "kind" in fields:
        fields["from"] = fields.pop("kind")
    table = {row[0].strip("`"): row for row in rows("spec.md", heading) if row[0].startswith("`")}
    assert set(table) == set(fields)
    for name, row in table.items():
        default = fields[name].default
        if isinstance(default, (bool, int)):
            assert row[2] == json.dumps(default)
        elif isinstance(default, str):
            assert row[2] == default
        if row[3].startswith("`--"):
            flags = {flag for param in cli.get_command(None, "convert").params for flag in param.opts}
            assert row[3].strip("`") in flags


def sections_of_ops() -> dict[str, str]:
    """What the page says of each op, below its heading."""
    text = (REFERENCE / "ops.md").read_text(encoding="utf-8")
    ops = text[text.index("<!-- ops:") : text.index("<!-- /ops -->")]
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", ops, re.DOTALL | re.MULTILINE))


def test_the_ops_page_has_a_section_for_every_op_with_its_form_and_fields() -> None:
    sections = sections_of_ops()
    linked = {re.sub("[`:].*", "", name) for name in names("ops.md", "Ops")}
    assert sections.keys() == OPS.keys() == linked
    with_fields = {name for name, op in OPS.items() if dataclasses.is_dataclass(op)}
    for name, text in sections.items():
        assert f"`{OPS[name].usage}`" in text
        fields = {item.name: item.default for item in dataclasses.fields(OPS[name])} if name in with_fields else {}
        if "ext" in fields:
            line = re.search("^Fields: (.*)\\.$", text, re.MULTILINE)
            assert line
            assert re.findall(r"`(\w+)`", line[1]) == [*fields]
            for field, default in re.findall(r"`(\w+)` \((\w+)\)", line[1]):
                meant = "bilinear" if field == "method" else fields[field]
                assert default == (json.dumps(meant) if isinstance(meant, bool) else str(meant).removesuffix(".0"))


def test_no_table_of_the_ops_page_is_too_wide_for_a_phone() -> None:
    tables = [line for line in (REFERENCE / "ops.md").read_text("utf-8").splitlines() if line.startswith("|---")]
    assert len(tables) > 5
    assert max(line.count("|") - 1 for line in tables) <= 3


def test_every_example_of_an_op_parses(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, name in (("crop.py", "crop"), ("package/module.py", "function")):
        (data / path).parent.mkdir(exist_ok=True)
        (data / path).write_text(f"def {name}(sample):\n    return sample\n")
    monkeypatch.chdir(data)
    monkeypatch.syspath_prepend(str(data))
    for name, text in sections_of_ops().items():
        block = re.search("^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        assert block
        assert {type(parse_op(example)) for example in shlex.split(block[1])} == {OPS[name]}


def test_the_ops_page_has_every_preset_and_type() -> None:
    assert names("ops.md", "Presets") == set(preset_names())
    assert names("ops.md", "Types") == set(TYPES)


def test_the_environment_page_has_the_variables_of_the_endpoints_of_every_store() -> None:
    documented = {
        (name, row[1].strip("`"))
        for row in rows("environment.md", "Stores")
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    for store, scheme in ((S3Store, "s3://"), (GcsStore, "gs://"), (AzureStore, "az://")):
        assert {(name, scheme) for name in store.endpoints} <= documented


@pytest.mark.parametrize("row", [row for row in rows("output.md", "The path") if len(row) == 4 and "`out" in row[0]])
def test_paths_become_what_the_output_page_says(row: list[str], data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    command = cli.get_command(None, "convert")
    words = ["shards", "-j", "1", "-q", "-o", row[0].strip("`"), *shlex.split(row[1].strip("`"))]
    assert command.main(words, standalone_mode=False) == 0
    assert {*tree(Path("out"))} == {*re.findall(r"`([^`]+)`", row[2]), row[3].strip("`")}


def made(conversion: Conversion) -> Any:
    return json.loads(Path(convert(conversion, workers=1).manifest or "").read_text())


def test_the_manifest_page_has_every_key(shards: Path) -> None:
    split = Output(str(shards.parent / "out/<split>.record"))
    manifest = made(Conversion(Input(str(shards)), split, split={"a": 0.5, "b": 0.5}, shuffle=True))
    assert set(manifest) | {"documents", "joined", "labels", "sizes", "undescribed"} == names("manifest.md", "Keys")
    for section in ("inputs", "shards"):
        assert {key for item in manifest[section] for key in item} == names("manifest.md", section)
    assert {key for item in manifest["features"].values() for key in item} == names("manifest.md", "features")
    assert set(manifest["totals"]) == names("manifest.md", "totals")
    assert set(manifest["skipped"]) | {"asked", "boxes", "gaps", "keys_missing", "lost"} == names(
        "manifest.md", "skipped"
    )


def test_the_manifest_page_shows_a_real_manifest(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shards.parent)
    text = (REFERENCE / "manifest.md").read_text(encoding="utf-8")
    shown = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    output = Output("out/train-<>.record", max_shard_size=100_000)
    manifest = made(Conversion(Input("shards", ("photos-0.tar",)), output, types={"cls": "int64"}))
    for name in ("sizes", "checksum"):
        assert shown.pop(name)[:7] == manifest.pop(name)[:7]
    for whole in (shown, manifest):
        del whole["inputs"][0]["version"]  # the time of the file
    assert shown == manifest


def test_every_page_is_in_the_navigation_of_the_site_and_of_its_folder() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert set(re.findall(r"([\w/-]+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(), re.MULTILINE)) == pages
    for folder in ("reference", "migrating"):
        linked = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / folder / "index.md").read_text(encoding="utf-8"))
        assert {*linked, "index.md"} >= {path.name for path in (DOCS / folder).glob("*.md")}
