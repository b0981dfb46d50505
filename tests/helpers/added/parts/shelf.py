"""A store: the folder that the variable SHELF names, as the bucket `shelf://any`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, NoSuchObject, ObjectExists, Store
from tar2tf_cli.errors import SourceError


class ShelfStore(Store):
    """Files in a folder."""

    def __init__(self, bucket: str, endpoint: str | None) -> None:
        shelf, _, folder = bucket.partition("://")[2].strip("/").partition("/")
        super().__init__(bucket, f"{folder}/" if folder else "")
        self._url = f"shelf://{shelf}"

    @property
    def _folder(self) -> Path:
        return Path(os.environ["SHELF"])

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """Yield every file."""
        for path in self._folder.rglob("*"):
            name = path.relative_to(self._folder).as_posix()
            if path.is_file() and name.startswith(self.root + prefix):
                yield self._info(name.removeprefix(self.root), path)

    def head(self, name: str) -> ObjectInfo | None:
        """Return one file."""
        path = self._folder / (self.root + name)
        return self._info(name, path) if path.is_file() else None

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Open a file."""
        now = self.head(item.name)
        if now is None:
            raise NoSuchObject("does not exist", shard=self.locate(item.name))
        if item.version not in (None, now.version):
            raise SourceError("changed while it was being read", shard=self.locate(item.name))
        file = (self._folder / (self.root + item.name)).open("rb")
        file.seek(start)
        return Body(file.read, file.close, start, now.size, now.version)

    def locate(self, name: str) -> str:
        """Return the URL."""
        return f"{self._url}/{self.root}{name}".rstrip("/")

    def put(self, name: str, path: str, *, absent: bool = False) -> None:
        """Store a file."""
        if absent and self.head(name):
            raise ObjectExists("already exists", shard=self.locate(name))
        target = self._folder / (self.root + name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, f"{target}.new")
        os.replace(f"{target}.new", target)

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self._folder / (self.root + name)).unlink(missing_ok=True)

    def _info(self, name: str, path: Path) -> ObjectInfo:
        found = path.stat()
        return ObjectInfo(name, found.st_size, str(found.st_mtime_ns))
