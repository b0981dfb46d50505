"""AIStore buckets through the official SDK, with the addresses, tokens and certificates of AIStore's own tools."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.spec.templates import from_aistore
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores import network
from tar2tf_cli.stores.base import ObjectInfo
from tar2tf_cli.stores.network import body_of, check_status, network_errors
from tar2tf_cli.stores.objects import Store
from tar2tf_cli.stores.transfer import Body, NoSuchObject

__all__ = ["AisStore"]

_PROVIDERS: Final = {
    "ais": "ais",
    **dict.fromkeys(("s3", "aws"), "aws"),
    **dict.fromkeys(("gs", "gcp"), "gcp"),
    **dict.fromkeys(("az", "azure"), "azure"),
    **dict.fromkeys(("oc", "oci"), "oci"),
}
_URI: Final = re.compile(r"ais(?:\+(\w+))?://(?:@([^#/]*))?(?:#([^/]*))?(?(2)/|(?(3)/))([^/@#]+)(?:/(.*))?", re.DOTALL)
_JWT: Final = re.compile(r"\beyJ[\w-]+\.[\w-]*\.[\w-]*")  # a revoked token is repeated in the cluster's message
_TOKEN_FILE: Final = "~/.config/ais/cli/auth.token"
_LOGIN: Final = "log in with `ais auth login`, or set AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE"


class AisStore(Store):
    """A bucket of an AIStore cluster: `ais://bucket`, `ais://@uuid#namespace/bucket`, `ais+s3://bucket` behind it.

    Args:
        bucket: the URI, parsed here because the SDK loses namespaces.
        endpoint: the address of a proxy; AIS_ENDPOINT when None.

    Raises:
        UsageError: for a URI that is not an AIStore bucket's, or when no endpoint is known.
    """

    PAGE: Final = 0  # objects per page of a listing; 0 means the cluster's default

    dialect = staticmethod(from_aistore)
    numbers = True

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
        self._provider, self._uuid, self._namespace, self._name = provider, match[2] or "", match[3] or "", match[4]
        self._prefix = bucket[: match.end(4)]
        address = endpoint or os.environ.get("AIS_ENDPOINT")
        if not address:
            raise UsageError(
                f"{bucket} needs the address of its cluster",
                hint="pass --endpoint http://PROXY:PORT or set AIS_ENDPOINT",
            )
        self.lists_versions = provider == "ais"
        self._endpoint = address if "://" in address else f"http://{address}"
        self._shown = without_secrets(self._endpoint)

    def connect(self) -> Any:
        """Make the SDK's bucket, with a client that does not retry."""
        from aistore.sdk import Client
        from aistore.sdk.retry_config import RetryConfig
        from aistore.sdk.types import Namespace
        from tenacity import Retrying, stop_after_attempt
        from urllib3.util.retry import Retry

        _silence()
        _check_certificate()
        once = RetryConfig(Retry(0, read=False), Retrying(stop=stop_after_attempt(1), reraise=True))
        timeout = (
            _seconds("AIS_CONNECT_TIMEOUT", network.CONNECT_SECONDS),
            _seconds("AIS_READ_TIMEOUT", network.READ_SECONDS),
        )
        with warnings.catch_warnings():  # about verification that the user chose to skip
            warnings.simplefilter("ignore")
            client = Client(self._endpoint, timeout=timeout, retry_config=once, token=_token())
        namespace = Namespace(uuid=self._uuid, name=self._namespace) if self._uuid or self._namespace else None
        bucket = client.bucket(self._name, self._provider, namespace)
        _go_by_variables_of_aistore(bucket.client.session_manager.session)
        return bucket

    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
        """List page by page, in the cluster's order."""
        with self._errors(self.bucket):
            for entry in self.client.list_objects_iter(
                self.root + prefix, props="name,size,checksum,version", page_size=self.PAGE
            ):
                version = entry.checksum or entry.version or None
                yield ObjectInfo(entry.name[len(self.root) :], entry.size, version if self.lists_versions else None)

    def head(self, name: str) -> ObjectInfo | None:
        """Return size, checksum and version."""
        with contextlib.suppress(NoSuchObject), self._errors(self.locate(name)):
            found = self.client.object(self.root + name).head(props="size,checksum,version,custom")
            return ObjectInfo(name, found.size, self._version(found), _checksum(found))
        return None

    def fetch(self, item: ObjectInfo, start: int) -> Body:
        """Send a GET, which the cluster redirects to the target that has the object."""
        with self._errors(self.locate(item.name)):
            reader = self.client.object(self.root + item.name).get_reader(
                byte_range=f"bytes={start}-" if start else None
            )
            raw = reader.raw()
        return body_of(raw, start, self._version(reader.attributes), _checksum(reader.attributes))

    def put(self, name: str, path: str) -> None:
        """PUT to the target that the proxy names; the SDK would send the bytes to the proxy as well."""
        where, item = self.locate(name), self.client.object(self.root + name)
        request = self.client.client
        size = str(os.stat(path).st_size)
        with self._errors(where):
            answer = request.request(
                "PUT",
                f"objects/{item.bucket_name}/{quote(item.name)}",
                params=item.query_params,
                headers={"Content-Length": size, "Connection": "close"},  # the length is signed
                allow_redirects=False,  # without data, or the SDK would follow the redirect by itself over HTTPS
            )
            session = request.session_manager.session
            headers = {"Authorization": f"Bearer {request.token}"} if request.token else {}
            with open(path, "rb") as file:
                answer = session.put(answer.headers["Location"], data=file, headers=headers, timeout=request.timeout)
        check_status(answer.status_code, _message(_parsed(answer.text)), where)

    def copy(self, name: str, target: str) -> None:
        """Copy within the cluster."""
        with self._errors(self.locate(target)):
            self.client.object(self.root + name).copy(self.client.object(self.root + target))

    def remove(self, name: str) -> None:
        """Send a DELETE."""
        with contextlib.suppress(NoSuchObject), self._errors(self.locate(name)):
            self.client.object(self.root + name).delete()

    def locate(self, name: str) -> str:
        """Return the URI."""
        return f"{self._prefix}/{self.root}{name}"

    def _version(self, found: Any) -> str | None:
        """Return the checksum; for a cloud bucket the ETag, as the checksum exists only while the object is cached."""
        if self._provider == "ais":
            return found.checksum_value or found.obj_version or None
        return found.custom_metadata.get("ETag") or found.obj_version or None

    @contextlib.contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Convert the SDK's exceptions to `Transient` or SourceError."""
        from aistore.sdk.errors import APIRequestError, NoTargetError

        try:
            hint = "set AIS_CLIENT_CA to the cluster's CA certificate"
            with network_errors(self._shown, hint, server=self._shown):
                yield
        except APIRequestError as error:
            self._refused(error.status_code, _document(error), where)
        except NoTargetError:
            raise SourceError("the cluster has no targets", shard=self._shown) from None
        except ValueError as error:  # of msgspec or JSON
            raise self._no_cluster(str(error)) from None

    def _refused(self, status: int, document: Mapping[str, Any], where: str) -> None:
        """Raise the error in an error document."""
        message = _message(document)
        hint = _LOGIN if status in (401, 403) else None
        if status == 404 and message and not _is_of_object(document):
            missing = "" if "bucket" in message else "no such bucket: "
            raise SourceError(missing + message, shard=where) from None
        if status < 500 and not message:
            raise self._no_cluster(f"it answered {status}") from None
        check_status(status, message, where, hint)

    def _no_cluster(self, why: str) -> SourceError:
        hint = "check --endpoint or AIS_ENDPOINT"
        return SourceError(f"the endpoint is not an AIStore cluster: {why}", shard=self._shown, hint=hint)


def _document(error: Any) -> Mapping[str, Any]:
    """Return the error document of a response: the body, or for HEAD a header, which the SDK ignores."""
    headers = getattr(getattr(error.__cause__, "response", None), "headers", {})
    return _parsed(error.message or headers.get("Hdr-Error", ""))


def _is_of_object(document: Mapping[str, Any]) -> bool:
    """Whether what was not found is the object; for a cloud bucket only the requested path shows it."""
    kind = document.get("tcode")
    return kind == "ErrNotFound" if kind else str(document.get("url_path", "")).startswith("/v1/objects/")


def _checksum(found: Any) -> tuple[str, str] | None:
    return (found.checksum_type, found.checksum_value) if found.checksum_value else None


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _message(document: Mapping[str, Any]) -> str:
    """Return the message of an error document, without the node's name and without a token that it repeats."""
    message = re.sub(r"^[pt]\[\w+\]: ", "", str(document.get("message", ""))).strip()
    return _JWT.sub("", message).rstrip(": ")


def _token() -> str | None:
    """Find the token as AIStore's own tools do: AIS_AUTHN_TOKEN, AIS_AUTHN_TOKEN_FILE, the file of `ais auth login`."""
    if token := os.environ.get("AIS_AUTHN_TOKEN"):
        return token
    given = os.environ.get("AIS_AUTHN_TOKEN_FILE")
    path = os.path.expanduser(given or _TOKEN_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return str(json.load(file)["token"])
    except FileNotFoundError:
        if given:
            raise UsageError(f"AIS_AUTHN_TOKEN_FILE is set to {path}, which does not exist") from None
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a token file such as `ais auth login` writes") from None


def _check_certificate() -> None:
    """Check that the CA file exists before requests does, which would retry."""
    path = os.environ.get("AIS_CLIENT_CA")
    if path and not os.path.exists(path):
        raise UsageError(f"AIS_CLIENT_CA is set to {path}, which does not exist")


def _go_by_variables_of_aistore(session: Any) -> None:
    """Make AIS_CLIENT_CA and AIS_SKIP_VERIFY_CRT override REQUESTS_CA_BUNDLE, which requests would prefer."""
    if session.verify is True:
        return
    if not session.verify:
        from urllib3 import disable_warnings
        from urllib3.exceptions import InsecureRequestWarning

        disable_warnings(InsecureRequestWarning)
    merge = session.merge_environment_settings

    def merged(url: str, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        return merge(url, proxies, stream, session.verify if verify is None else verify, cert)

    session.merge_environment_settings = merged


def _seconds(variable: str, otherwise: float) -> float:
    try:
        return float(os.environ.get(variable) or otherwise)
    except ValueError:
        raise UsageError(f"{variable} is not a number of seconds") from None


def _silence() -> None:
    """Remove the handler that the SDK adds to each of its loggers, which writes to standard error."""
    logging.getLogger("aistore").addHandler(logging.NullHandler())
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("aistore.")]:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
