"""Makes the tree that is released: `python docs/release.py 0.1.0`, then commit, and tag `v0.1.0`.

It sets the version and the date where they stand, and turns what the pages say of installing into what holds once the
package is on PyPI. The workflow release.yml builds and publishes the tag.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PUBLISHED = (
    (
        "README.md",
        "tar2tf is not on PyPI yet: `pip install FOLDER`, with the folder of your copy, installs it elsewhere, and "
        "`WITHOUT_TENSORFLOW=1 pip install FOLDER` does so\n[without TensorFlow]"
        "(docs/reference/install.md#without-tensorflow). Once it is released, `pip install tar2tf-cli` will do.",
        "`pip install tar2tf-cli` installs it anywhere, and "
        "`WITHOUT_TENSORFLOW=1 pip install --no-binary tar2tf-cli tar2tf-cli` does so\n[without TensorFlow]"
        "(docs/reference/install.md#without-tensorflow).",
    ),
    (
        "docs/reference/install.md",
        "tar2tf is not on PyPI yet. In a copy of its repository:\n\n```console\npip install .\n```",
        "```console\npip install tar2tf-cli\n```",
    ),
    (
        "docs/reference/install.md",
        "```console\nWITHOUT_TENSORFLOW=1 pip install .\n```",
        "```console\nWITHOUT_TENSORFLOW=1 pip install --no-binary tar2tf-cli tar2tf-cli\n```",
    ),
)
"""What changes with the first release: the page, what it says before, and what it says afterwards."""


def changes(old: str, new: str, date: str) -> Iterator[tuple[str, str, str]]:
    """The page, the text before and the text after, for each text that a release changes."""
    yield "tar2tf_cli/spec/__init__.py", f'__version__ = "{old}"', f'__version__ = "{new}"'
    yield "CITATION.cff", f"version: {old}\n", f"version: {new}\ndate-released: {date}\n"
    yield "tar2tf_cli/remote/Dockerfile", f"tar2tf:{old} ", f"tar2tf:{new} "
    yield "tar2tf_cli/remote/Dockerfile", f"tar2tf-cli=={old}\n", f"tar2tf-cli=={new}\n"
    yield "docs/deploy/recipe.yaml", f'version: "{old}"', f'version: "{new}"'
    yield "CHANGELOG.md", "(unreleased)", f"({date})"
    yield from PUBLISHED


def release(root: Path, old: str, new: str, date: str) -> None:
    """Make the changes.

    Raises:
        ValueError: when a text is not there; nothing is changed then.
    """
    texts: dict[Path, str] = {}
    for page, before, after in changes(old, new, date):
        path = root / page
        text = texts.get(path) or path.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise ValueError(f"{page} does not say once: {before}")
        texts[path] = text.replace(before, after)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from tar2tf_cli import __version__

    release(ROOT, __version__, sys.argv[1], datetime.datetime.now(datetime.timezone.utc).date().isoformat())
