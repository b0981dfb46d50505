"""Amazon S3, Google Cloud Storage and Azure Blob Storage, through obstore.

A file is uploaded in one PUT from a memory map, whole or not at all. A killed process leaves nothing behind, whereas a
multipart upload would leave hidden parts that cost money: one is used only for what is too large for one request, and
what an earlier one of the same object left is aborted first. The mapped pages belong to the page cache: they count as
resident, up to the size of the file, but the system can reclaim them at any time.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from tar2tf_cli.errors import SourceError, Tar2tfError, UsageError
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores import network
from tar2tf_cli.stores.cloud_credentials import (
    anonymous,
    aws_endpoint,
    aws_keys,
    aws_provider,
    google_provider,
    region_of,
)
from tar2tf_cli.stores.cloud_errors import raise_as_ours, sentence
from tar2tf_cli.stores.object_info import ObjectInfo
from tar2tf_cli.stores.obstore_module import obstore_store
from tar2tf_cli.stores.retries import NoSuchObject, Transient
from tar2tf_cli.stores.store import Store
from tar2tf_cli.stores.transfer import Body, ResumingStream

__all__ = ["KINDS", "AzureStore", "CloudStore", "GcsStore", "S3Store"]

_PAGE: Final = 1000
_PART: Final = 64 << 20
_COPY_MINUTES: Final = 32
_FILE: Final = re.compile(r"\.(tar(\.\w+)?|tgz|tfrecords?|record|idx|json)$")  # how no folder is called
_CA: Final = ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class CloudStore(Store):
    """A bucket that obstore reads and writes; names are relative to the folder in the URL, if any.

    Attributes:
        scheme: scheme of the bucket's URL.
        cloud: its name.
        login: what to do when credentials are missing or refused.
        endpoints: variables that hold the address of a server other than the cloud's own, in order of precedence.
        one_put: the most bytes that one request may upload or copy.
    """

    scheme: ClassVar[str]
    cloud: ClassVar[str]
    login: ClassVar[str]
    endpoints: ClassVar[tuple[str, ...]]
    one_put: ClassVar[int]

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        name, _, folder = bucket.partition("://")[2].strip("/").partition("/")
        if not re.fullmatch(r"[A-Za-z0-9_.$-]+", name):
            raise UsageError(f"{bucket!r} does not name a bucket", hint=f"write {self.scheme}://BUCKET/FOLDER")
        super().__init__(bucket, f"{folder}/" if folder else "")
        self._name = name
        self._endpoint = _address(next(filter(None, (endpoint, *map(os.environ.get, self.endpoints))), None))

    @abstractmethod
    def make(self, stores: Any, **options: Any) -> Any:
        """Make obstore's store; `stores` is obstore's module, `options` apply to every cloud."""

    def connect(self) -> Any:
        """Make a client for requests whose response begins at once; a stalled one fails after `READ_SECONDS`."""
        return self._connect(timeout=timedelta(days=7), read_timeout=timedelta(seconds=network.READ_SECONDS))

    def connect_patiently(self, minutes: int) -> Any:
        """Make a client for uploads and copies, whose response comes when they are complete."""
        return self._connect(timeout=timedelta(minutes=minutes))

    def _connect(self, **timeouts: timedelta) -> Any:
        path = network.first_file(_CA)
        try:
            return self._trusting(path, timeouts)
        except (Tar2tfError, ModuleNotFoundError):
            raise
        except Exception as error:
            if path or "No CA certificates" not in str(error):
                raise UsageError(sentence(error), shard=self.bucket, hint=self.login) from None
        return self._trusting(network.own_bundle(), timeouts)  # a small container has none

    def _trusting(self, path: str | None, timeouts: dict[str, timedelta]) -> Any:
        """Make a client that accepts the system's CA certificates, and those in a file."""
        client: dict[str, Any] = {"allow_http": True, "connect_timeout": timedelta(seconds=network.CONNECT_SECONDS)}
        if path:
            client["root_certificate"] = Path(path).read_bytes()
        return self.make(obstore_store(), client_options={**client, **timeouts}, retry_config={"max_retries": 0})

    @property
    def _signing(self) -> dict[str, Any]:
        return {"skip_signature": True} if self.unsigned else {}

    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
        """List page by page, from the deepest folder in the prefix."""
        whole = self.root + prefix
        with self._errors(self.bucket):
            for page in self.client.list(whole.rpartition("/")[0] or None, chunk_size=_PAGE):
                for meta in page:
                    name = meta["path"][len(self.root) :]
                    # consoles make folders as empty objects whose names end with a slash, which obstore strips
                    if meta["path"].startswith(whole) and (meta["size"] or _FILE.search(name) or self.head(name)):
                        yield _info(name, meta)

    def head(self, name: str) -> ObjectInfo | None:
        """Return size and ETag by HEAD, or by GET when that fails, as a HEAD response has no error message."""
        with contextlib.suppress(NoSuchObject):
            try:
                with self._errors(self.locate(name)):
                    return _info(name, self.client.head(self.root + name))
            except Tar2tfError:
                body = self.fetch(ObjectInfo(name, None, None), 0)
                return ObjectInfo(name, body.size, body.version)
        return None

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send one streamed GET, which the server refuses if the object was replaced."""
        where = self.locate(item.name)
        options: dict[str, Any] = {"range": {"offset": start}} if start else {}
        if size is not None:
            options["range"] = start, start + size
        if item.version:
            options["if_match"] = f'"{item.version}"'
        with self._errors(where, start):
            answer = self.client.get(self.root + item.name, options=options)
            chunks = answer.stream(ResumingStream.BLOCK)
            info = _info(item.name, answer.meta)

        def read(size: int) -> bytes:
            with self._errors(where):
                return next(chunks, b"")

        return Body(read, lambda: None, answer.range[0], info.size, info.version)

    def put(self, name: str, path: str) -> None:
        """Send one PUT, which S3 checks against a SHA-256; files too large for one request go in parts."""
        size = os.stat(path).st_size
        client = self.of_process(self.connect_patiently, 2 << (size >> 27).bit_length())  # at least 1 MiB/s
        with open(path, "rb") as file, self._errors(self.locate(name)):
            if size > self.one_put:
                self.abort_uploads(name)
                client.put(self.root + name, Path(path), chunk_size=_PART, max_concurrency=2)
            else:  # the map is closed when obstore releases it
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
                client.put(self.root + name, data, use_multipart=False)

    def abort_uploads(self, name: str) -> None:
        """Abort uploads in parts of an object that a killed run left, where the store does not drop them by itself."""
        return

    def copy(self, name: str, target: str) -> None:
        """Copy within the store; objects too large for one request pass through this machine."""
        client = self.of_process(self.connect_patiently, _COPY_MINUTES)
        found = self.head(name)
        with self._errors(self.locate(target)):
            if found and found.size and found.size > self.one_put:
                self.abort_uploads(target)
                client.put(self.root + target, client.get(self.root + name).stream(_PART), chunk_size=_PART)
            else:
                client.copy(self.root + name, self.root + target)

    def remove(self, name: str) -> None:
        """Delete one object."""
        with contextlib.suppress(NoSuchObject), self._errors(self.locate(name)):
            self.client.delete(self.root + name)

    def locate(self, name: str) -> str:
        """Return the URL."""
        return f"{self.scheme}://{self._name}/{self.root}{name}"

    @contextlib.contextmanager
    def _errors(self, where: str, offset: int | None = None) -> Iterator[None]:
        """Convert obstore's exceptions to `Transient` or one of our errors."""
        try:
            yield
        except (Tar2tfError, Transient, ModuleNotFoundError):
            raise
        except Exception as error:
            raise_as_ours(error, where, without_secrets(self._endpoint or self.cloud), self.login, offset)


class S3Store(CloudStore):
    """`s3://`: Amazon S3, and compatible servers at AWS_ENDPOINT_URL or `--endpoint`."""

    scheme = "s3"
    cloud = "Amazon S3"
    login = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket --no-sign-request"
    endpoints = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    one_put = 5 << 30

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        super().__init__(bucket, endpoint)
        self._endpoint = self._endpoint or _address(aws_endpoint())

    def make(self, stores: Any, **options: Any) -> Any:
        """Use the credentials of AWS's own tools; the bucket's region is looked up at Amazon."""
        keys = {} if self.unsigned else aws_keys()
        config = {"disable_bulk_delete": True, **self._signing, **keys, **self._region}
        if self._endpoint:
            config |= {"endpoint": self._endpoint, "aws_endpoint_url_s3": self._endpoint}
        provider = None if self.unsigned or keys else aws_provider()
        return stores.S3Store(self._name, config=config, credential_provider=provider, **options)

    @cached_property
    def _region(self) -> dict[str, str]:
        """The bucket's region if it is at Amazon and could be looked up; known to forked processes, too."""
        return {} if self._endpoint else region_of(self._name)

    def abort_uploads(self, name: str) -> None:
        """Abort them through boto3, as obstore cannot list them; if it is installed, and the user may."""
        where, region = {"Bucket": self._name}, self._region
        with contextlib.suppress(Exception):
            import boto3

            client = boto3.Session().client("s3", endpoint_url=self._endpoint, region_name=region.get("region"))
            pages = client.get_paginator("list_multipart_uploads").paginate(**where, Prefix=self.root + name)
            for upload in [upload for page in pages for upload in page.get("Uploads", ())]:
                if upload["Key"] == self.root + name:
                    client.abort_multipart_upload(**where, Key=upload["Key"], UploadId=upload["UploadId"])


class GcsStore(CloudStore):
    """`gs://`: Google Cloud Storage, or an emulator at STORAGE_EMULATOR_HOST or `--endpoint`."""

    scheme = "gs"
    cloud = "Google Cloud Storage"
    login = "run `gcloud auth application-default login`; for a public bucket --no-sign-request"
    endpoints = ("STORAGE_EMULATOR_HOST",)
    one_put = 5 << 40

    def make(self, stores: Any, **options: Any) -> Any:
        """Use Google's default credentials; none for an emulator."""
        config = self._signing
        if self._endpoint:
            config |= {"base_url": self._endpoint}
            if self._endpoint.startswith("http://") and not self.unsigned:
                options["credential_provider"] = anonymous
        options["config"] = config
        try:
            return stores.GCSStore(self._name, **options)
        except Exception:
            options["credential_provider"] = google_provider()  # obstore supports only users and service accounts
            if options["credential_provider"] is None:
                raise
            return stores.GCSStore(self._name, **options)


class AzureStore(CloudStore):
    """`az://`: a container of Azure Blob Storage, in the account named by the AZURE_STORAGE_ variables."""

    scheme = "az"
    cloud = "Azure Blob Storage"
    login = "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another variable with credentials"
    endpoints = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    one_put = 5000 << 20

    def make(self, stores: Any, **options: Any) -> Any:
        """Use Azure's own variables."""
        config = self._signing | ({"endpoint": self._endpoint} if self._endpoint else {})
        return stores.AzureStore(self._name, config=config, **options)

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send one streamed GET; Azure refuses a deleted object as it does one that was replaced."""
        try:
            return super().fetch(item, start, size)
        except SourceError as error:
            if item.version and self.head(item.name) is None:
                raise NoSuchObject(error.message, shard=error.shard) from None
            raise


KINDS: Final[dict[str, Callable[[str, str | None], CloudStore]]] = {"s3": S3Store, "gs": GcsStore, "az": AzureStore}


def _address(endpoint: str | None) -> str | None:
    """Return an endpoint if it is a valid URL, since obstore panics if it is not."""
    if not endpoint:
        return None
    url = endpoint if "://" in endpoint else f"http://{endpoint}"
    try:
        good = bool(urlsplit(url).hostname and urlsplit(url).port != 0 and re.fullmatch(r"https?://[!-~]+", url))
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"the endpoint {without_secrets(url)!r} is not a URL", hint="write http://HOST:PORT")
    return url.rstrip("/")


def _info(name: str, meta: Any) -> ObjectInfo:
    return ObjectInfo(name, meta["size"], (meta["e_tag"] or "").strip('"') or None)
