"""A double of the Hugging Face Hub: revisions, trees and resolved files of one dataset, and the server of its bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, unquote, urlsplit

from servers import Forwarder, serving


def git_digest(data: bytes) -> str:
    """The name of a blob in Git."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass
class Hub:
    """The state of the double.

    Attributes:
        url: its address.
        bytes_url: the address of the server of the bytes, which has another host.
        commits: the files of each commit, by its name.
        branches: the commit of each branch.
        page: entries in a page of a tree.
        token: the token that is asked for; empty for a public dataset.
        seen: for each request to the Hub, its method and path.
        tokens: for each request to the Hub, its Authorization.
        authorizations: what the server of the bytes received as Authorization.
        refusals: statuses and headers of the next answers, in place of their own.
        damaged: whether a byte of each file is changed on its way.
    """

    url: str = ""
    bytes_url: str = ""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    page: int = 3
    token: str = ""
    seen: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    damaged: bool = False

    def commit(self, branch: str = "main", **changes: bytes | None) -> str:
        """Make a commit with files changed, or removed (None), and return its name."""
        files = dict(self.commits.get(self.branches.get(branch, ""), {}))
        for name, data in changes.items():
            if data is None:
                del files[name]
            else:
                files[name] = data
        sha = hashlib.sha1(str(len(self.commits)).encode(), usedforsecurity=False).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        return sha


def is_large(data: bytes) -> bool:
    """Whether a file is stored outside of Git, as large ones are."""
    return len(data) > 8


@contextmanager
def hub_server(name: str = "me/photos") -> Iterator[Hub]:
    """A Hub with one dataset, empty at first."""
    hub = Hub()
    hub.commit()

    class Bytes(Forwarder):
        def do_GET(self) -> None:
            hub.authorizations.append(self.headers["Authorization"])
            sha, _, path = urlsplit(self.path).path[1:].partition("/")
            data = hub.commits[sha][unquote(path)]
            whole, status, headers = data, 200, {"ETag": '"of the bytes alone"'}
            if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or ""):
                start, end = int(match[1]), int(match[2] or len(data) - 1)
                data, status = data[start : end + 1], 206
                headers["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{len(whole)}"
            if hub.damaged:
                data = data[:-1] + bytes([data[-1] ^ 1])
            self.answer(status, headers, data)

    class Handler(Forwarder):
        def do_GET(self) -> None:
            hub.seen.append(f"{self.command} {self.path}")
            hub.tokens.append(self.headers["Authorization"])
            if hub.refusals:
                status, headers = hub.refusals.pop(0)
                self.answer(status, headers, b'{"error": "later"}')
            elif hub.token and self.headers["Authorization"] != f"Bearer {hub.token}":
                self.refuse(401, "GatedRepo", "Access to dataset me/photos is restricted.")
            else:
                url = urlsplit(self.path)
                self.route(url.path, parse_qs(url.query))

        do_HEAD = do_GET

        def route(self, path: str, query: dict[str, list[str]]) -> None:
            if match := re.fullmatch(rf"/api/datasets/{name}/revision/([^/]+)", path):
                revision = unquote(match[1])
                sha = hub.branches.get(revision, revision if revision in hub.commits else "")
                if sha:
                    self.json({"id": name, "sha": sha})
                else:
                    self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            elif path == f"/api/datasets/{name}":
                self.json({"id": name, "sha": hub.branches["main"], "siblings": []})
            elif match := re.fullmatch(rf"/api/datasets/{name}/tree/(\w+)(?:/(.*))?", path):
                self.tree(
                    hub.branches.get(match[1], match[1]), unquote(match[2] or ""), int(query.get("cursor", ["0"])[0])
                )
            elif match := re.fullmatch(rf"/datasets/{name}/resolve/(\w+)/(.*)", path):
                self.resolve(hub.branches.get(match[1], match[1]), unquote(match[2]))
            else:
                self.refuse(401, "RepoNotFound", "Repository not found")

        def tree(self, sha: str, folder: str, cursor: int) -> None:
            entries = []
            for path, data in sorted(hub.commits[sha].items()):
                if not folder or path.startswith(f"{folder}/"):
                    entry = {"type": "file", "path": path, "oid": git_digest(data), "size": len(data)}
                    digest = hashlib.sha256(data).hexdigest()
                    large = {"lfs": {"oid": digest, "size": len(data), "pointerSize": 130}} if is_large(data) else {}
                    entries.append({**entry, **large})
            if folder and not entries:
                self.refuse(404, "EntryNotFound", f"{folder} does not exist")
                return
            more = cursor + hub.page < len(entries)
            following = f'<{hub.url}{urlsplit(self.path).path}?recursive=true&cursor={cursor + hub.page}>; rel="next"'
            self.json(entries[cursor : cursor + hub.page], {"Link": following} if more else {})

        def resolve(self, sha: str, path: str) -> None:
            data = hub.commits[sha].get(path)
            if data is None:
                self.refuse(404, "EntryNotFound", "Entry not found")
            elif is_large(data):
                digest = hashlib.sha256(data).hexdigest()
                linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{digest}"', "X-Repo-Commit": sha}
                location = f"{hub.bytes_url}/{sha}/{quote(path)}?signature=1"
                self.answer(302, {"Location": location, **linked}, b"Found")
            else:
                headers = {"ETag": f'"{git_digest(data)}"', "X-Repo-Commit": sha}
                if self.command == "HEAD":
                    headers["Content-Length"] = str(len(data))
                self.answer(200, headers, data)

        def json(self, document: object, headers: dict[str, str] | None = None) -> None:
            self.answer(200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(document).encode())

        def refuse(self, status: int, code: str, message: str) -> None:
            self.answer(status, {"X-Error-Code": code, "X-Error-Message": message}, b"")

    with serving(Handler) as hub.url, serving(Bytes) as other:
        hub.bytes_url = other.replace("127.0.0.1", "localhost")
        yield hub
