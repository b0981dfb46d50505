"""AIStore buckets over the cluster's HTTP API, with the configuration of AIStore's own tools."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, NoSuchObject, Transient
from tar2tf_cli.errors import SourceError, UsageError, changed
from tar2tf_cli.spec.urls import server_of, without_secrets
from tar2tf_cli.stores import retries as network
from tar2tf_cli.stores.control import Answer, ask, parsed
from tar2tf_cli.stores.curl import Response, WebClient
from tar2tf_cli.stores.retries import HTTP_TO_HTTPS, check_status, seconds_from_env, wrong_scheme
from tar2tf_cli.stores.web import WebStore, body_of, byte_range, text_of

LOGIN: Final = "log in with `ais auth login`, or set AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE"
TLS_HINT: Final = "set AIS_CLIENT_CA to the cluster's CA certificate"
_TOKEN_FILE: Final = "~/.config/ais/cli/auth.token"
_TRUE: Final = ("1", "t", "true", "y", "yes", "on")


def credentials() -> dict[str, str]:
    """Return the authorization header, from AIS_AUTHN_TOKEN, AIS_AUTHN_TOKEN_FILE, or the file of `ais auth login`.

    Raises:
        UsageError: when the file does not contain a token.
    """
    token = os.environ.get("AIS_AUTHN_TOKEN") or _token_in_file()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _token_in_file() -> str | None:
    given = network.path_from_env("AIS_AUTHN_TOKEN_FILE")
    path = os.path.expanduser(given or _TOKEN_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return str(json.load(file)["token"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a token file such as `ais auth login` writes") from None


def tls() -> tuple[bool | str, tuple[str, str] | None]:
    """Return the TLS settings: whether to verify certificates (or the path of the CA), and client certificate and key.

    Raises:
        UsageError: when a file does not exist.
    """
    authority, certificate, key = map(network.path_from_env, ("AIS_CLIENT_CA", "AIS_CRT", "AIS_CRT_KEY"))
    skip = os.environ.get("AIS_SKIP_VERIFY_CRT") or os.environ.get("AIS_SKIP_VERIFY") or ""
    verify = False if skip.lower() in _TRUE else authority or True
    return verify, (certificate, key) if certificate and key else None


def timeouts() -> tuple[float, float]:
    """Return the timeouts in seconds for connecting to a node, and for a node that sends nothing.

    Raises:
        UsageError: when a variable is not a number.
    """
    connect = seconds_from_env("AIS_CONNECT_TIMEOUT", network.CONNECT_SECONDS)
    return connect, seconds_from_env("AIS_READ_TIMEOUT", network.READ_SECONDS)


_PROVIDERS: Final = {
    "ais": "ais",
    **dict.fromkeys(("s3", "aws"), "aws"),
    **dict.fromkeys(("gs", "gcp"), "gcp"),
    **dict.fromkeys(("az", "azure"), "azure"),
    **dict.fromkeys(("oc", "oci"), "oci"),
}
_URI: Final = re.compile(r"ais(?:\+(\w+))?://(?:@([^#/]*))?(?:#([^/]*))?(?(2)/|(?(3)/))([^/@#]+)(?:/(.*))?", re.DOTALL)
_JWT: Final = re.compile(r"\beyJ[\w-]+\.[\w-]*\.[\w-]*")  # the cluster's message repeats a revoked token
_PASSING: Final = re.compile(
    r"no (storage )?targets|failed to call [pt]\[|connection (refused|reset)|not (yet )?ready|starting up|"
    r"i/o timeout|is being (restarted|shut down)|broken pipe|unexpected EOF|EOF$"
)
"""Errors that the cluster answers with 400 while a node restarts."""

_NO_BUCKET: Final = re.compile(r"bucket \S+ does not exist")

SETTLING: Final = 10.0  # seconds after which objects can be found again when a node has left or joined


class _NodeMap:
    """The cluster's map of nodes, and the time at which this process first saw its version.

    Args:
        version: the version of the map.
    """

    def __init__(self, version: str | None) -> None:
        self._version = version
        self._since = -SETTLING

    def settled(self, version: str | None) -> bool:
        """Whether the map has had this version long enough for objects to be on the nodes in it."""
        now = time.monotonic()
        if version != self._version:
            self._version, self._since = version, now
        return now - self._since >= SETTLING


class AisStore(WebStore):
    """A bucket of an AIStore cluster: `ais://bucket`, `ais://@uuid#namespace/bucket`, or `ais+s3://bucket` in a cloud.

    The proxy redirects each request for an object to the target that has it. The API is described at
    https://aistore.nvidia.com/docs/http-api.

    Args:
        bucket: the URI.
        endpoint: the address of a proxy; AIS_ENDPOINT when None.

    Raises:
        UsageError: for a URI that is not an AIStore bucket's, or when no endpoint is known.
    """

    PAGE: Final = 0  # objects per page of a listing; 0 means the cluster's default

    aistore_templates = True

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        match = _URI.fullmatch(bucket)
        provider = _PROVIDERS.get(match[1] or "ais") if match else None
        if match is None or provider is None:
            raise UsageError(
                f"{without_secrets(bucket)!r} is not an AIStore bucket",
                hint="write ais://BUCKET, ais://@UUID#NAMESPACE/BUCKET, ais+s3://BUCKET or ais+gs://BUCKET",
            )
        folder = (match[5] or "").strip("/")
        super().__init__(bucket, f"{folder}/" if folder else "")
        self._provider, self._name = provider, match[4]
        self._namespace = f"@{match[2] or ''}#{match[3] or ''}"
        self._prefix = bucket[: match.end(4)]
        address = endpoint or os.environ.get("AIS_ENDPOINT")
        if not address:
            hint = "pass --endpoint http://PROXY:PORT or set AIS_ENDPOINT"
            raise UsageError("no address of the AIStore cluster is given", hint=hint)
        self.lists_versions = provider == "ais"
        self.endpoint = (address if "://" in address else f"http://{address}").rstrip("/")
        self.cluster = self.proxy = server_of(self.endpoint)

    def connect(self) -> WebClient:
        """Create a client with the user's token and certificates."""
        verify, cert = tls()
        token = {} if self.unsigned else credentials()
        return WebClient(token, verify=verify, cert=cert, timeout=timeouts(), tls_hint=TLS_HINT)

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """List page by page, in the cluster's order; fails while nodes join or leave, when listings are incomplete."""
        nodes, wanted = self.cluster_map(), self.root + prefix
        folder, slash, name = wanted.rpartition("/")
        listed = wanted if name.strip(".") else folder + slash  # AIStore refuses `folder/.`
        asked = {"prefix": listed, "props": "name,size,checksum,version", "pagesize": self.PAGE}
        while True:
            page = self._list(asked)
            for entry in page.get("entries") or ():
                if not entry["name"].startswith(wanted):
                    continue
                version = entry.get("checksum") or entry.get("version") or None
                name = entry["name"][len(self.root) :]
                yield ObjectInfo(name, int(entry.get("size", 0)), version if self.lists_versions else None)
            asked |= {"uuid": page.get("uuid", ""), "continuation_token": page.get("continuation_token", "")}
            if not asked["continuation_token"]:
                break
        if self.cluster_map() != nodes:
            raise Transient("a node left or joined during the listing", self.proxy)

    def cluster_map(self) -> str | None:
        """Return the version of the cluster's map of nodes; None when the token may not read it."""
        version = self._about("smap").get("version")
        return None if version is None else str(version)

    def control(
        self, method: str, path: str, message: Mapping[str, object] | None = None, *, wait: float = 0
    ) -> Answer:
        """Send a control request to the proxy, without checking the status of the answer.

        Args:
            method: the HTTP method.
            path: the part of the URL after the API version.
            message: sent as JSON.
            wait: seconds that the cluster may take, if it may take longer than usual.

        Raises:
            Transient: when the cluster cannot be reached or does not answer.
            SourceError: when its certificate is rejected, or it speaks HTTP instead of HTTPS or the reverse.
        """
        (verify, cert), (connect, read) = tls(), timeouts()
        token = {} if self.unsigned else credentials()
        how: dict[str, Any] = {"headers": token, "verify": verify, "cert": cert, "tls_hint": TLS_HINT}
        return ask(method, f"{self.endpoint}/v1/{path}", message, timeout=(connect, max(read, wait)), **how)

    def _about(self, what: str) -> Mapping[str, object]:
        """Query the cluster over the connection for data, as each worker does before its first object."""
        response = self.client.send("GET", f"{self.endpoint}/v1/daemon?what={what}")
        return parsed(response.read().decode("utf-8", "replace"))

    def _list(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        body = json.dumps({"action": "list", "value": asked}).encode()
        url = f"{self.endpoint}/v1/buckets/{quote(self._name)}?{self._query()}"
        response = self.client.send("GET", url, {"Content-Type": "application/json"}, body)
        text = self.checked(response, self.bucket).read()
        try:
            page = json.loads(text)
        except ValueError as error:
            raise self._no_cluster(str(error)) from None
        if not isinstance(page, dict):
            raise self._no_cluster("its answer is not a listing")
        if not ("entries" in page and isinstance(page.get("continuation_token"), str)):
            raise Transient("the answer is not a page of a listing", self.proxy)
        return page

    def head(self, name: str) -> ObjectInfo | None:
        """Return size, checksum and version of an object."""
        with contextlib.suppress(NoSuchObject):
            response = self._request("HEAD", name)
            response.drain()
            return self.described(response, name)
        return None

    def head_each(self, names: Sequence[str]) -> Mapping[str, ObjectInfo | None]:
        """Send a HEAD for each object; the first alone, as it makes AIStore announce a cloud bucket to its nodes."""
        with contextlib.suppress(Transient):
            return {name: self.head(name) for name in names[:1]} | {**super().head_each(names[1:])}
        return {}

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send a GET, which the cluster redirects to the target that stores the object."""
        return self.body(self._request("GET", item.name, byte_range(start, size)), start)

    def body(self, response: Response, start: int = 0) -> Body:
        """Return the body of a response, with the object's checksum."""
        return body_of(response, start, self._version(response.headers), _checksum(response.headers))

    def _fetch_map(self) -> _NodeMap:
        return _NodeMap(self.cluster_map())

    def put(self, name: str, path: str, *, absent: bool = False) -> None:
        """Upload the bytes to the target that the proxy names in answer to a request without a body."""
        if absent:
            self.refuse_existing(name)
        where, length = self.locate(name), {"Content-Length": str(os.stat(path).st_size)}  # the proxy signs the length
        response = self.client.send("PUT", self.url(name), {**length, "Connection": "close"}, follow=False)
        self.checked(response, where).drain()
        target = response.headers.get("Location")
        if not target:
            raise self._no_cluster("it does not redirect uploads")
        if server_of(target) != self.proxy:
            length |= {"Authorization": ""}  # a target needs no token besides the proxy's signature
        with open(path, "rb") as file:
            response = self.client.send("PUT", target, length, file)
        self.checked(response, where).drain()

    def copy(self, name: str, target: str) -> None:
        """Copy an object within the cluster."""
        self._request("PUT", name, object_to=self.uname(target)).drain()

    def uname(self, name: str) -> str:
        """Return the cluster-wide unique name of an object."""
        return f"{self._provider}/{self._namespace}/{self._name}/{self.root}{name}"

    def remove(self, name: str) -> None:
        """Delete an object."""
        with contextlib.suppress(NoSuchObject):
            self._request("DELETE", name).drain()

    def locate(self, name: str) -> str:
        """Return the `ais://` URI of an object."""
        return f"{self._prefix}/{self.root}{name}"

    def url(self, name: str, **parameters: str) -> str:
        """Return the URL of an object in the cluster's API."""
        return f"{self.endpoint}/v1/objects/{quote(self._name)}/{quote(self.root + name)}?{self._query(**parameters)}"

    def request_url(self, method: str, name: str) -> str:
        """Return the URL of an object in the cluster's API; for HEAD, with the properties that GET returns."""
        return self.url(name, **({"props": "size,checksum,version,custom"} if method == "HEAD" else {}))

    def _query(self, **parameters: str) -> str:
        where = {"provider": self._provider, "namespace": self._namespace if self._namespace != "@#" else ""}
        return urlencode({**{key: value for key, value in where.items() if value}, **parameters})

    def _request(self, method: str, name: str, headers: Mapping[str, str] | None = None, **parameters: str) -> Response:
        """Send a request about an object; return the response if it is a success."""
        nodes = self.of_process(self._fetch_map)
        url = self.url(name, **parameters) if parameters else self.request_url(method, name)
        response = self.client.send(method, url, headers)
        try:
            return self.checked(response, self.locate(name))
        except NoSuchObject:
            if nodes.settled(self.cluster_map()):
                raise
        raise Transient("a node left or joined", self.proxy)

    def _version(self, headers: Mapping[str, str]) -> str | None:
        """Return the checksum as the version; for a cloud bucket the ETag, as only cached objects have a checksum."""
        if self._provider == "ais":
            return headers.get("Ais-Checksum-Value") or headers.get("Ais-Version") or None
        custom = dict(part.strip().partition("=")[::2] for part in headers.get("Ais-Custom-Md", "").split(","))
        return custom.get("ETag") or headers.get("Ais-Version") or None

    def checked(self, response: Response, where: str) -> Response:
        """Return a response if it is a success, otherwise raise its error."""
        if response.status >= 400:
            self.refuse(response, text_of(response), where)
        return response

    def refuse(self, response: Response | Answer, text: str, where: str) -> None:
        """Raise the error of a response whose body is `text`."""
        text = text or response.headers.get("Hdr-Error", "")  # an answer to HEAD has its message in a header
        status, document, node = response.status, parsed(text), response.server
        message = message_of(document)
        if status == 400 and not document and HTTP_TO_HTTPS.search(text or text_of(self.client.send("GET", node))):
            raise wrong_scheme(self.proxy, "https")
        from_target = node == self.proxy and str(document.get("node")).startswith("t[")
        if from_target and self._about("snode").get("daemon_type") == "target":  # a proxy may forward a target's error
            hint = "give the address of a proxy with --endpoint or AIS_ENDPOINT"
            raise SourceError("the endpoint is a target of the cluster, not a proxy", shard=self.proxy, hint=hint)
        if status == 404 and message and not _is_missing_object(document):
            if _NO_BUCKET.search(message) and self._has_bucket():
                raise Transient("a node does not know the bucket yet", node)
            missing = "" if "bucket" in message else "no such bucket: "
            raise SourceError(missing + message, shard=where, hint="check the URL and the endpoint")
        if status == 400 and _PASSING.search(message):
            raise Transient(message, node)
        if status < 500 and not message:
            raise self._no_cluster(f"it answered {status}")
        if status == 416:
            raise changed(where)
        login = LOGIN if status in (401, 403) else None
        check_status(status, message, where, login, server=node, after=response.retry_after)

    def _has_bucket(self) -> bool:
        """Whether the proxy has the bucket, which the other nodes learn a moment later."""
        response = self.client.send("HEAD", f"{self.endpoint}/v1/buckets/{quote(self._name)}?{self._query()}")
        response.drain()
        return bool(response.status < 400)

    def _no_cluster(self, why: str) -> SourceError:
        hint = "check --endpoint or AIS_ENDPOINT"
        return SourceError(f"the endpoint is not an AIStore cluster: {why}", shard=self.proxy, hint=hint)


def _is_missing_object(document: Mapping[str, object]) -> bool:
    """Whether an error says that the object, not its bucket, is missing; for a cloud bucket only the path shows it."""
    kind = document.get("tcode")
    return kind == "ErrNotFound" if kind else str(document.get("url_path", "")).startswith("/v1/objects/")


def _checksum(headers: Mapping[str, str]) -> tuple[str, str] | None:
    value = headers.get("Ais-Checksum-Value")
    return (headers.get("Ais-Checksum-Type", ""), value) if value else None


def message_of(document: Mapping[str, object]) -> str:
    """Return the message of an error document, without the node's name and any token that it repeats."""
    message = re.sub(r"^[pt]\[\w+\]: ", "", str(document.get("message", ""))).strip()
    return _JWT.sub("", message).rstrip(": ")
