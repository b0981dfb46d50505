"""Datasets of the Hugging Face Hub: `hf://datasets/USER/NAME[@REVISION][/PATH]`.

A dataset is a Git repository. Its revision is resolved to a commit once, and everything is read at that commit:
https://huggingface.co/docs/hub/api describes the routes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, NoSuchObject
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.curl import Response, WebClient
from tar2tf_cli.stores.retries import call_with_retries, check_status, path_from_env
from tar2tf_cli.stores.source import SMALL
from tar2tf_cli.stores.web import WebStore, body_of, byte_range, text_of

HUB: Final = "https://huggingface.co"
LOGIN: Final = "run `hf auth login` or set HF_TOKEN, and accept the dataset's terms if it has any"
_URL: Final = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?", re.DOTALL)
_NEXT: Final = re.compile(r'<([^>]+)>;\s*rel="next"')
_RESET: Final = re.compile(r"\bt=(\d+)")
_PAGE: Final = 1000


def token() -> str | None:
    """Return the user's Hugging Face token, found like the package huggingface_hub finds it.

    It is HF_TOKEN, or the token of `hf auth login` in the file HF_TOKEN_PATH; with HF_HUB_DISABLE_IMPLICIT_TOKEN, none
    is sent. Logins that expire, by a browser or on CI servers, are handled by the package, if it is installed.

    Raises:
        UsageError: when the file HF_TOKEN_PATH does not exist.
    """
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in _TRUE:
        return None
    if os.environ.get("HF_OIDC_RESOURCE") and (found := _token_of_library()):
        return found
    if given := _clean(os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""):
        return given
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.path.expandvars(os.environ.get("HF_HOME") or os.path.join(cache, "huggingface"))
    path = path_from_env("HF_TOKEN_PATH") or os.path.expanduser(os.path.join(home, "token"))
    try:
        with open(path, encoding="utf-8") as file:
            stored = _clean(file.read())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as the file of `hf auth login`: {error}") from None
    return (_token_of_library() or stored) if stored and _expires(stored, path) else stored


_TRUE: Final = ("1", "ON", "YES", "TRUE")


def _clean(text: str) -> str | None:
    return text.replace("\r", "").replace("\n", "").strip() or None


def _expires(token: str, path: str) -> bool:
    """Whether a token is an OAuth token of a browser login, which huggingface_hub renews with a refresh token."""
    try:
        with open(os.path.join(os.path.dirname(path), "stored_tokens"), encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return False
    return any(token in section and "refresh_token" in section for section in text.split("["))


def _token_of_library() -> str | None:
    """Return huggingface_hub's token, which the package may renew; None if the package is not installed."""
    try:
        from huggingface_hub import get_token
    except ImportError:
        return None
    found = get_token()
    return str(found) if found else None


class HubStore(WebStore):
    """A dataset of the Hub at one commit.

    Raises:
        UsageError: for a URL that names no dataset.
    """

    missing = (404,)

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        match = _URL.fullmatch(bucket)
        if match is None:
            hint = "write hf://datasets/USER/NAME, hf://datasets/USER/NAME@REVISION/PATH or hf://buckets/USER/NAME"
            raise UsageError(f"{bucket!r} is not a dataset or bucket of the Hugging Face Hub", hint=hint)
        folder = (match[3] or "").strip("/")
        super().__init__(bucket, f"{folder}/" if folder else "")
        self._name = match[1]
        self._revision = unquote(match[2] or "main")
        self._top = bucket[: match.end(2) if match[2] else match.end(1)]
        self._hub = (endpoint or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")

    def connect(self) -> WebClient:
        """Create a client that sends the user's token to the Hub only, not to servers that the Hub redirects to."""
        login = None if self.unsigned else token()
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {login}"} if login else {})
        return WebClient(headers)

    @property
    def commit(self) -> str:
        """The commit to which the revision resolved when it was first needed; pickling keeps it."""
        if not self.revision:
            self.revision = call_with_retries(self._resolve, self.retry_for, shard=self._top)
        return self.revision

    def _resolve(self) -> str:
        document, _ = self._ask(f"{self._hub}/api/datasets/{self._name}/revision/{quote(self._revision, safe='')}")
        sha = document.get("sha") if isinstance(document, dict) else None
        if not isinstance(sha, str):
            raise self._no_hub("its answer names no commit")
        return sha

    def _ask(self, url: str) -> tuple[object, Mapping[str, str]]:
        """Return the JSON body and the headers of an answer."""
        response: Response = self.client.send("GET", url)
        self._check(response, self.bucket)
        text = response.read()
        try:
            return json.loads(text), response.headers
        except ValueError:
            raise self._no_hub("its answer is not JSON") from None

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """List page by page, with the sizes and checksums of the files, not of their LFS pointers."""
        whole = self.root + prefix
        folder = whole.rpartition("/")[0]
        for entry in self._tree(folder):
            path = str(entry.get("path"))
            if entry.get("type") == "file" and path.startswith(whole):
                large = entry.get("lfs") or {}
                digest = large.get("oid")
                size, version = large.get("size", entry.get("size")), digest or entry.get("oid")
                yield ObjectInfo(path[len(self.root) :], size, version, ("sha256", digest) if digest else None)

    def _tree(self, folder: str) -> Iterator[dict[str, Any]]:
        path = f"/{quote(folder)}" if folder else ""
        url = f"{self._hub}/api/datasets/{self._name}/tree/{self.commit}{path}?recursive=true&limit={_PAGE}"
        while url:
            try:
                page, headers = self._ask(url)
            except NoSuchObject:
                if folder:  # the folder does not exist
                    return
                raise
            if not isinstance(page, list):
                raise self._no_hub("its answer is not a listing")
            yield from page
            following = _NEXT.search(headers.get("Link", ""))
            url = following[1] if following else ""

    def head(self, name: str) -> ObjectInfo | None:
        """Send a HEAD without following the redirect, as only the Hub's own answer describes the file."""
        response: Response = self.client.send("HEAD", self.request_url("HEAD", name), follow=False)
        response.drain()
        if response.status in self.missing and response.headers.get("X-Error-Code", "EntryNotFound") == "EntryNotFound":
            return None
        self._check(response, self.locate(name))
        size = response.headers.get("X-Linked-Size") or response.headers.get("Content-Length", "")
        linked = _plain(response.headers.get("X-Linked-ETag"))
        version = linked or _plain(response.headers.get("ETag"))
        digest = ("sha256", linked) if linked and re.fullmatch("[0-9a-f]{64}", linked) else None
        return ObjectInfo(name, int(size) if size.isdecimal() else None, version, digest)

    def head_each(self, names: Sequence[str]) -> Mapping[str, ObjectInfo | None]:
        """Return nothing, so that `head` looks up each object without following redirects."""
        return {}

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send a GET for the object at the commit, which never changes."""
        response: Response = self.client.send("GET", self.request_url("GET", item.name), byte_range(start, size))
        self._check(response, self.locate(item.name))
        return body_of(response, start, item.version, item.checksum)

    def fetch_each(self, items: Sequence[ObjectInfo]) -> Generator[Body | None, None, None]:
        """Send a GET for each object."""
        urls = (self.request_url("GET", item.name) for item in items)
        for item, response in zip(items, self.client.each("GET", urls, SMALL), strict=True):
            good = response is not None and response.status == 200
            yield body_of(response, 0, item.version, item.checksum) if response and good else None

    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body of an object, without a version."""
        return body_of(response, start, None)

    def request_url(self, method: str, name: str) -> str:
        """Return the URL of an object at the commit."""
        return f"{self._hub}/datasets/{self._name}/resolve/{self.commit}/{quote(self.root + name)}"

    def locate(self, name: str) -> str:
        """Return the `hf://` URL of an object, with the revision as the user gave it."""
        return f"{self._top}/{self.root}{name}"

    def _check(self, response: Response, where: str) -> None:
        """Raise the error of a response that is neither a success nor a redirect."""
        if response.status < 400:
            return
        said = response.headers.get("X-Error-Message", "") or _message(text_of(response))
        response.close()
        hint = LOGIN if response.status in (401, 403) else None
        check_status(response.status, said, where, hint, server=self._hub, after=_after(response))

    def _no_hub(self, why: str) -> SourceError:
        return SourceError(f"the endpoint is not a Hugging Face Hub: {why}", shard=self._hub, hint="check HF_ENDPOINT")


def _plain(etag: str | None) -> str | None:
    return (etag or "").removeprefix("W/").strip('"') or None


def _after(response: Response) -> float:
    """Return the seconds to wait, according to Retry-After or the Hub's rate-limit header."""
    reset = _RESET.search(response.headers.get("RateLimit", "")) if response.status == 429 else None
    return response.retry_after or (float(reset[1]) if reset else 0)


def _message(text: str) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        return ""
    return str(document.get("error", "")) if isinstance(document, dict) else ""
