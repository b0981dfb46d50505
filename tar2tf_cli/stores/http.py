"""Objects behind http:// and https://, through requests; AIStore's SDK, which is built on it, shares the answers."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tar2tf_cli.errors import SourceError, UsageError, changed
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores.base import ObjectInfo
from tar2tf_cli.stores.objects import Store
from tar2tf_cli.stores.transfer import CONNECT_SECONDS, READ_SECONDS, Body, Transient

if TYPE_CHECKING:
    import requests

__all__ = ["HttpStore", "body_of", "network_errors", "status_error"]

_TRANSIENT: Final = (408, 429, 500, 502, 503, 504)
_IDENTITY: Final = {"Accept-Encoding": "identity"}  # bytes as stored: .tar.gz must not come unpacked


class HttpStore(Store):
    """Files below a base URL, or the one file that the URL names; there is no listing.

    Credentials come from .netrc or the URL itself, certificates from REQUESTS_CA_BUNDLE, proxies from HTTPS_PROXY, as
    requests reads them.
    """

    can_list = False

    def __init__(self, bucket: str) -> None:
        try:
            self._url = urlsplit(bucket)
            named = self._url.hostname
        except ValueError:  # which may repeat what is secret
            raise UsageError(f"{without_secrets(bucket)!r} is no URL") from None
        if not named:
            raise UsageError(f"{without_secrets(bucket)!r} names no host", hint="write http://HOST/FOLDER")
        path = self._url.path
        super().__init__(without_secrets(bucket), path if path.endswith("/") else f"{path}/")
        self._names_file = not path.endswith("/") and bool(path)

    def connect(self) -> requests.Session:
        """A session of requests, which keeps connections open."""
        import requests
        from requests.adapters import HTTPAdapter

        session = requests.Session()
        session.headers.update(_IDENTITY)
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=32))
        return session

    def single(self) -> str | None:
        """The file that the URL names, if it does not end with a slash."""
        return unquote(super().single() or "") or None if self._names_file else None

    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
        """There is none.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.locate('')} cannot be listed, as HTTP has no listing",
            hint="name the shards with braces, such as 'train-{0000..0146}.tar'",
        )

    def head(self, name: str) -> ObjectInfo | None:
        """Size and ETag by HEAD, or by asking for one byte where a server refuses HEAD."""
        response = self._request("HEAD", name)
        if response.status_code in (400, 403, 405, 501):
            response = self._request("GET", name, Range="bytes=0-0")
            response.close()
        if response.status_code in (404, 410):
            return None
        if response.status_code != 416:
            status_error(response.status_code, "", self.locate(name))
        body = body_of(response.raw, 0, _version(response.headers))
        return ObjectInfo(name, body.size, body.version)

    def fetch(self, item: ObjectInfo, start: int) -> Body:
        """A GET, with a range from the second on."""
        response = self._request("GET", item.name, **({"Range": f"bytes={start}-"} if start else {}))
        try:
            if response.status_code == 416:
                raise changed(self.locate(item.name), start)
            status_error(response.status_code, "", self.locate(item.name))
        except BaseException:
            response.close()
            raise
        return body_of(response.raw, start, _version(response.headers), _checksum(response.headers))

    def locate(self, name: str) -> str:
        """The URL, without what may be secret in it."""
        host = self._url.netloc.rpartition("@")[2]
        return urlunsplit((self._url.scheme, host, self.root + quote(name), "", ""))

    def _request(self, method: str, name: str, **headers: str) -> requests.Response:
        url = urlunsplit((self._url.scheme, self._url.netloc, self.root + quote(name), self._url.query, ""))
        with network_errors(self.locate(name)):
            response: requests.Response = self.client.request(
                method,
                url,
                headers=headers,
                stream=True,
                allow_redirects=True,
                timeout=(CONNECT_SECONDS, READ_SECONDS),
            )
        return response


def body_of(raw: Any, start: int, version: str | None, checksum: tuple[str, str] | None = None) -> Body:
    """The body of an answer of urllib3's that was asked for from an offset on."""
    length = raw.headers.get("Content-Length")
    size = int(length) if length is not None and length.isdecimal() else None
    begins = 0
    if raw.status == 206:
        match = re.match(r"bytes (\d+)-\d+/(\d+|\*)", raw.headers.get("Content-Range", ""))
        if not match:
            raise Transient("the server answered a range without saying which")
        begins = int(match[1])
        size = int(match[2]) if match[2] != "*" else None

    def read(count: int) -> bytes:
        with network_errors(""):
            data: bytes = raw.read(count, decode_content=False)
        return data

    return Body(read, raw.close, begins, size, version, checksum)


def status_error(status: int, message: str, url: str, hint: str | None = None) -> None:
    """Raise what an HTTP status stands for; nothing for a success.

    Raises:
        Transient: for what may pass.
        SourceError: for the rest.
    """
    if status < 400:
        return
    told = f": {message}" if message else ""
    if status in _TRANSIENT:
        raise Transient(f"the server answered {status}{told}")
    words = {
        401: "the server asks for credentials, or refuses these (401)",
        403: "permission denied (403)",
        404: "no such object (404)",
        410: "no such object (410)",
    }
    raise SourceError(f"{words.get(status, f'the server answered {status}')}{told}", shard=url, hint=hint)


@contextlib.contextmanager
def network_errors(
    url: str, tls_hint: str = "set REQUESTS_CA_BUNDLE to the server's CA", *, asked: str = ""
) -> Iterator[None]:
    """What requests and urllib3 raise, as `Transient` or SourceError.

    Args:
        url: the server or object, for errors that are final.
        tls_hint: what to do when a certificate is refused.
        asked: the server, put before what may pass, where the object's URL does not name it.
    """
    prefix = f"{asked}: " if asked else ""
    import requests
    import urllib3

    try:
        yield
    except requests.exceptions.SSLError as error:
        raise SourceError(f"TLS failed: {_reason(error)}", shard=url or None, hint=tls_hint) from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema):  # which repeats what may be secret
        raise UsageError(f"{url!r}, or what it redirects to, is no URL that can be asked") from None
    except requests.exceptions.TooManyRedirects:
        raise SourceError("the server redirects without end", shard=url) from None
    except (requests.Timeout, urllib3.exceptions.TimeoutError):
        raise Transient(f"{prefix}no answer within {READ_SECONDS:.0f} s") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise Transient(prefix + _reason(error)) from None


def _reason(error: BaseException) -> str:
    """What lies at the bottom of nested errors, in the system's words where it has some."""
    seen: set[int] = set()
    found: BaseException = error
    while id(found) not in seen:
        seen.add(id(found))
        inner = getattr(found, "reason", None)
        nested = (inner, *found.args, found.__cause__, found.__context__)
        found = next((part for part in nested if isinstance(part, BaseException) and id(part) not in seen), found)
    if isinstance(found, OSError) and found.strerror:
        return found.strerror
    text = re.sub(r"^.*?: (?=Failed|\[Errno)|<[^>]*>[:,]? ?", "", str(found)).strip() or type(found).__name__
    return re.sub(r"^IncompleteRead.*|.*[Rr]emote end closed.*|^Connection broken.*", "the connection broke off", text)


def _version(headers: Mapping[str, str]) -> str | None:
    return headers.get("ETag") or headers.get("Last-Modified")


def _checksum(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Google Cloud Storage tells a CRC-32C also over plain HTTP."""
    match = re.search(r"crc32c=([\w+/=]+)", headers.get("x-goog-hash", ""))
    return ("crc32c", base64.b64decode(match[1]).hex()) if match else None
