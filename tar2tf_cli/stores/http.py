"""Objects behind http:// and https://."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from tar2tf_cli.errors import UsageError, changed
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores.object_info import ObjectInfo
from tar2tf_cli.stores.responses import HTTP_TO_HTTPS, body_of, byte_range, check_status, crc32c_of, text_of
from tar2tf_cli.stores.transfer import Body
from tar2tf_cli.stores.web import WebClient, WebStore

if TYPE_CHECKING:
    from tar2tf_cli.stores.curl import Response

__all__ = ["HttpStore"]

_IDENTITY: Final = {"Accept-Encoding": "identity"}  # bytes as stored: .tar.gz must not be decompressed on the way
_LOGIN: Final = "name the server's login in ~/.netrc, or write it as http://USER:PASSWORD@HOST/..."


class HttpStore(WebStore):
    """Files below a base URL, or the one file at the URL; they cannot be listed.

    Credentials come from the URL itself or .netrc, certificates from REQUESTS_CA_BUNDLE, proxies from HTTPS_PROXY.
    """

    can_list = False
    missing = (404, 410)

    def __init__(self, bucket: str) -> None:
        try:
            url = urlsplit(bucket)
            named = url.hostname
        except ValueError:  # the exception may repeat secrets
            raise UsageError(f"{without_secrets(bucket)!r} is not a valid URL") from None
        if not named:
            raise UsageError(f"{without_secrets(bucket)!r} has no host", hint="write http://HOST/FOLDER")
        path = url.path
        super().__init__(without_secrets(bucket), path if path.endswith("/") else f"{path}/")
        self._server = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
        self._asked = f"{url.scheme}://{url.netloc}"
        self._query = f"?{url.query}" if url.query else ""
        self._names_file = not path.endswith("/") and bool(path)

    def connect(self) -> WebClient:
        """Make a client that keeps connections open."""
        return WebClient(_IDENTITY)

    def parent(self) -> tuple[HttpStore, str] | None:
        """Return the parent folder and the file name, if the URL does not end with a slash."""
        found = super().parent() if self._names_file else None
        return (found[0], unquote(found[1])) if found else None

    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
        """Raise an error, as HTTP has no listing.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.locate('')} cannot be listed, as HTTP has no listing",
            hint="name the shards with braces, such as 'train-{0000..0146}.tar'",
        )

    def head(self, name: str) -> ObjectInfo | None:
        """Return size and ETag by HEAD, or by a GET of one byte if the server refuses HEAD."""
        response = self._request("HEAD", name)
        response.drain()
        if response.status in (400, 403, 405, 501):
            response = self._request("GET", name, Range="bytes=0-0")
        if response.status not in (*self.missing, 416):
            self._check(response, name)
        response.close()
        return None if response.status in self.missing else self.described(response, name)

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send a GET, with a range unless all bytes are wanted."""
        response = self._request("GET", item.name, **byte_range(start, size))
        if response.status == 416:
            response.close()
            raise changed(self.locate(item.name), start)
        self._check(response, item.name)
        return self.body(response, start)

    def locate(self, name: str) -> str:
        """Return the URL, without secrets."""
        return f"{self._server}{self.root}{quote(name)}"

    def _request(self, method: str, name: str, **headers: str) -> Response:
        response: Response = self.client.send(method, self.request_url(method, name), headers)
        return response

    def request_url(self, method: str, name: str) -> str:
        """Return the URL, with its secrets."""
        return f"{self._asked}{self.root}{quote(name)}{self._query}"

    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body, with the checksum that Google Cloud Storage gives."""
        headers = response.headers
        return body_of(response, start, _version(headers), crc32c_of(headers.get("x-goog-hash", "")))

    def _check(self, response: Response, name: str) -> None:
        """Raise the error of a response that is not a success."""
        if response.status >= 400:
            text = text_of(response)
            said = text if HTTP_TO_HTTPS.search(text) else ""  # other servers answer with pages of HTML
            hint = _LOGIN if response.status == 401 else None
            check_status(
                response.status, said, self.locate(name), hint, server=self._server, after=response.retry_after
            )


def _version(headers: Mapping[str, str]) -> str | None:
    return headers.get("ETag") or headers.get("Last-Modified")
