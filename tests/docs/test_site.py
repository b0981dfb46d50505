"""All pages of the site, pasted one after the other into one folder, in the order in which the site lists them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shards import samples, write_tar

pytestmark = pytest.mark.xdist_group("pages")

ROOT = Path(__file__).parents[2]
TESTED_ELSEWHERE = {"reference/three-ways.md", "reference/extending.md"}
MADE = 2
"""Number of the blocks of the recipes that make the data of all pages, which `data` has run."""

PAGES = [
    page
    for page in re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    if page not in TESTED_ELSEWHERE
    and re.search("^```(sh|python)", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("data")
def test_the_pages_run_one_after_the_other_in_one_folder(
    s3: str, tmp_path: Path, reader: Any, page_blocks: Callable[[str], Iterator[Any]]
) -> None:
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    for number in range(4):
        path = write_tar(tmp_path / f"train-{number:04d}.tar", samples(10, first=10 * number))
        client.upload_file(str(path), "bucket", f"shards/{path.name}")
    for page in PAGES:
        for number, block in enumerate(page_blocks(page)):
            if not (page == "recipes.md" and number < MADE):
                reader.run(page, block)
