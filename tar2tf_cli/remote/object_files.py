"""The files of a target that a transformer may read: objects in its mount paths, and nothing else."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from tar2tf_cli.errors import NothingFoundError, SourceError

__all__ = ["MOUNT_PATHS", "NotAllowedError", "object_file", "only_a_part"]

MOUNT_PATHS: Final = "TAR2TF_MOUNT_PATHS"
"""The variable with the mount paths, separated by colons; without it, AIStore's mark of a mount path counts."""

_MARK: Final = "user.ais.daemon_id"
"""The extended attribute that a target gives its mount paths (AIStore, fs/mpather.go and cmn/fname)."""


_LAYOUT: Final = re.compile(r"/@(\w+)/(?:([@#][^/]*)/)?([^/]+)/%ob/(.+)", re.DOTALL)
"""Provider, namespace, bucket and name of an object, after its mount path (AIStore, fs/fqn.go)."""


class NotAllowedError(SourceError):
    """A file that a transformer may not read."""


def object_file(path: str) -> Path:
    """The file of an object, with symbolic links resolved: MOUNT_PATH/@PROVIDER/BUCKET/... and a regular file.

    Raises:
        NotAllowedError: when it is not in a mount path.
        NothingFoundError: when there is no such file.
    """
    found = Path(os.path.realpath(os.path.join("/", path)) if "\0" not in path else "/")
    places = zip(found.parts[1:], found.parents[::-1], strict=False)
    if not any(place.startswith("@") and _is_mount_path(folder) for place, folder in places):
        hint = f"the mount paths are those that the target marked, or that {MOUNT_PATHS} names"
        raise NotAllowedError("is not an object in a mount path of the target", shard=str(found), hint=hint)
    if not found.is_file():
        raise NothingFoundError("there is no such file", shard=str(found))
    return found


def only_a_part(file: Path) -> str | None:
    """The full name of an object, if its file is only the first of several; None if the file is the whole object.

    An object that was uploaded in parts is kept in as many files. The cluster tells only the first of them. A file
    of the same name in the folder %ut lists them (AIStore, core/ufest.go).
    """
    found = _LAYOUT.search(str(file))
    if found is None or not os.path.exists(f"{str(file)[: found.start(4)].removesuffix('%ob/')}%ut/{found[4]}"):
        return None
    namespace = found[2] or "@#"
    return f"{found[1]}/{namespace if namespace.startswith('@') else f'@{namespace}'}/{found[3]}/{found[4]}"


def _is_mount_path(folder: Path) -> bool:
    given = os.environ.get(MOUNT_PATHS)
    if given is not None:
        return str(folder) in {os.path.realpath(known) for known in given.split(os.pathsep) if known}
    with suppress(OSError, AttributeError):  # the latter where there are no extended attributes
        return bool(os.getxattr(folder, _MARK))
    return False
