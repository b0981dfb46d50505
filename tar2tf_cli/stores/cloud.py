"""Amazon S3 and Google Cloud Storage through fsspec, with credentials by each ecosystem's own chain."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tar2tf_cli.errors import SourceError, UsageError, changed
from tar2tf_cli.formats.tfrecord import crc32c_of_file
from tar2tf_cli.stores import network
from tar2tf_cli.stores.base import ObjectInfo
from tar2tf_cli.stores.objects import Store
from tar2tf_cli.stores.transfer import Body, Transient

__all__ = ["CloudStore", "GcsStore", "S3Store"]

_WINDOW: Final = 8 << 20
_USER: Final = re.compile(r"(?<=://)[^/@\s\"']+@")  # of an endpoint, in other libraries' words
_ONE_PUT: Final = 1 << 30
_PART: Final = 64 << 20
_WORK_SECONDS: Final = 120.0
_DENIED: Final = (
    "AccessDenied",
    "Forbidden",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "401",
    "403",
)


class CloudStore(Store):
    """A bucket that fsspec reads; a folder behind the bucket's name is where names begin."""

    scheme: str
    extra: str
    login: str

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        name, _, folder = bucket.partition("://")[2].strip("/").partition("/")
        if not name:
            raise UsageError(f"{bucket!r} names no bucket", hint=f"write {self.scheme}://BUCKET/FOLDER")
        super().__init__(bucket, f"{folder}/" if folder else "")
        self.name = name
        self.endpoint = endpoint

    def connect(self) -> Any:
        """The file system of fsspec; one of our own, as those that fsspec shares keep listings."""
        return self._connect(network.READ_SECONDS)

    def connect_patiently(self) -> Any:
        """The same for requests that a server may work on in silence, in proportion to an object's size."""
        return self._connect(_WORK_SECONDS)

    def _connect(self, read_seconds: float) -> Any:
        for name in ("s3fs", "gcsfs", "google.auth", "aiobotocore"):  # or their warnings go to standard error
            logging.getLogger(name).addHandler(logging.NullHandler())
        try:
            return self.make(read_seconds)
        except ImportError:
            raise UsageError(
                f"{self.scheme}:// buckets need an extra that is not installed",
                hint=f"pip install 'tar2tf-cli[{self.extra}]'",
            ) from None

    @abstractmethod
    def make(self, read_seconds: float) -> Any:
        """The file system, which takes a server as stalled after so many seconds of silence."""

    @abstractmethod
    def item(self, name: str, info: Mapping[str, Any]) -> ObjectInfo:
        """An object from what fsspec tells of it."""

    def path(self, name: str) -> str:
        """The object's path in fsspec's words."""
        return f"{self.name}/{self.root}{name}"

    def listing(self, prefix: str) -> Iterable[ObjectInfo]:
        """All at once, as fsspec gives them."""
        whole = self.root + prefix
        folder, slash, begin = whole.rpartition("/")
        with self.errors(self.bucket):
            found = self.client.find(f"{self.name}/{folder}{slash}".rstrip("/"), detail=True, prefix=begin)
        top = self.path("")  # what is no folder is found, too
        files = {path: info for path, info in found.items() if info["type"] == "file" and path.startswith(top)}
        return [self.item(path[len(top) :], info) for path, info in files.items()]

    def head(self, name: str) -> ObjectInfo | None:
        """Size and version."""
        try:
            with self.errors(self.locate(name), missing=FileNotFoundError):
                info = self.client.info(self.path(name))
        except FileNotFoundError:
            return None
        return self.item(name, info) if info["type"] == "file" else None

    def copy(self, name: str, target: str) -> None:
        """As fsspec copies; in parts where one request may not copy so much."""
        with self.errors(self.locate(target)):
            self.of_process(self.connect_patiently).cp_file(self.path(name), self.path(target))

    def remove(self, name: str) -> None:
        """Delete one object."""
        with contextlib.suppress(FileNotFoundError), self.errors(self.locate(name), missing=FileNotFoundError):
            self.client.rm_file(self.path(name))

    def locate(self, name: str) -> str:
        """The URL."""
        return f"{self.scheme}://{self.path(name)}"

    @contextlib.contextmanager
    def errors(self, where: str, missing: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """What fsspec and the libraries below it raise, as `Transient` or SourceError."""
        try:
            yield
        except missing:
            raise
        except FileNotFoundError as error:
            raise SourceError(_gone(error), shard=where) from None
        except PermissionError as error:
            raise SourceError(f"permission denied: {error}", shard=where, hint=self.login) from None
        except (Transient, SourceError, UsageError):
            raise
        except Exception as error:
            raise self.told(error, where) from None

    def told(self, error: Exception, where: str) -> Exception:
        """An error of another library's by its name and text."""
        kind, text = type(error).__name__, str(error) or type(error).__name__
        text = _USER.sub("", text.splitlines()[0])
        if "Credentials" in kind or "Credentials" in text or "RefreshError" in kind:
            return SourceError(f"no credentials: {text}", shard=where, hint=self.login)
        if _code(error) in _DENIED or any(word in text for word in _DENIED[:5]):
            return SourceError(f"permission denied: {text}", shard=where, hint=self.login)
        if "SSL" in kind or "Certificate" in kind or "CERTIFICATE" in text:
            return SourceError(f"TLS failed: {text}", shard=where, hint="set AWS_CA_BUNDLE or SSL_CERT_FILE to the CA")
        return Transient(text)


class S3Store(CloudStore):
    """`s3://`, through s3fs; AWS_ENDPOINT_URL and AWS_PROFILE hold as everywhere."""

    scheme = "s3"
    extra = "s3"
    login = "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket FSSPEC_S3_ANON=true"

    def make(self, read_seconds: float) -> Any:
        """s3fs without its own retries."""
        from s3fs import S3FileSystem

        system = S3FileSystem(
            endpoint_url=self.endpoint,
            config_kwargs={
                "connect_timeout": network.CONNECT_SECONDS,
                "read_timeout": read_seconds,
                "retries": {"total_max_attempts": 1},
                "max_pool_connections": 32,
            },
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        system.retries = 1
        return system

    def item(self, name: str, info: Mapping[str, Any]) -> ObjectInfo:
        """Version is the ETag."""
        return ObjectInfo(name, info["size"], info["ETag"].strip('"'))

    def fetch(self, item: ObjectInfo, start: int) -> Body:
        """One GET, streamed; refused by the server when the object was replaced."""
        from fsspec.asyn import sync

        where = self.locate(item.name)
        asked: dict[str, str] = {"ChecksumMode": "ENABLED"} if not start else {"Range": f"bytes={start}-"}
        if item.version:
            asked["IfMatch"] = item.version
        with self.errors(where):
            answer = self._get(item, start, asked)
        stream, loop = answer["Body"], self.client.loop

        def read(size: int) -> bytes:
            with self.errors(where):
                data: bytes = sync(loop, stream.read, size, timeout=network.READ_SECONDS)
            return data

        size = int(answer.get("ContentRange", f"/{answer['ContentLength']}").rpartition("/")[2])
        begins = start if "ContentRange" in answer else 0
        return Body(read, stream.close, begins, size, answer["ETag"].strip('"'), _s3_checksum(answer))

    def put(self, name: str, path: str) -> None:
        """One PUT with a CRC-32C that S3 holds the bytes against; in parts where one request may not be so large."""
        with self.errors(self.locate(name)):
            if os.stat(path).st_size > _ONE_PUT:
                patient = self.of_process(self.connect_patiently)
                patient.put_file(path, self.path(name), chunksize=_PART)
                return
            crc = base64.b64encode(crc32c_of_file(path).to_bytes(4, "big")).decode()
            with open(path, "rb") as file:
                self.client.call_s3("put_object", Bucket=self.name, Key=self.root + name, Body=file, ChecksumCRC32C=crc)

    def _get(self, item: ObjectInfo, start: int, asked: dict[str, str]) -> Any:
        try:
            return self.client.call_s3("get_object", Bucket=self.name, Key=self.root + item.name, **asked)
        except Exception as error:
            if _code(error) in ("PreconditionFailed", "412", "InvalidRange", "416"):
                raise changed(self.locate(item.name), start) from None
            raise


class GcsStore(CloudStore):
    """`gs://`, through gcsfs; GOOGLE_APPLICATION_CREDENTIALS and STORAGE_EMULATOR_HOST hold as everywhere."""

    scheme = "gs"
    extra = "gcs"
    login = "set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`"

    def make(self, read_seconds: float) -> Any:
        """gcsfs, without a cache of listings."""
        from gcsfs import GCSFileSystem

        return GCSFileSystem(
            endpoint_url=self.endpoint, use_listings_cache=False, skip_instance_cache=True, timeout=read_seconds
        )

    def item(self, name: str, info: Mapping[str, Any]) -> ObjectInfo:
        """Version is the generation."""
        version = str(info["generation"])
        crc = info.get("crc32c")
        return ObjectInfo(name, int(info["size"]), version, ("crc32c", base64.b64decode(crc).hex()) if crc else None)

    def put(self, name: str, path: str) -> None:
        """As gcsfs uploads."""
        with self.errors(self.locate(name)):
            self.client.put_file(path, self.path(name))

    def fetch(self, item: ObjectInfo, start: int) -> Body:
        """Ranges of one generation, one after the other, as gcsfs has no stream."""
        where = self.locate(item.name)
        known = item if item.size is not None else self.head(item.name)
        if known is None or known.size is None:
            raise SourceError("no such object", shard=where)
        position, size, window = start, known.size, b""

        def read(count: int) -> bytes:
            nonlocal position, window
            if not window and position < size:
                window = self._window(known, position, min(position + _WINDOW, size))
            data, window = window[:count], window[count:]
            position += len(data)
            return data

        return Body(read, lambda: None, start, size, known.version)

    def _window(self, item: ObjectInfo, start: int, stop: int) -> bytes:
        where = self.locate(item.name)
        try:
            with self.errors(where, missing=FileNotFoundError):
                data: bytes = self.client.cat_file(self.path(item.name), start=start, end=stop, generation=item.version)
        except FileNotFoundError:
            if self.head(item.name) is None:
                raise SourceError("no such object", shard=where, offset=start) from None
            raise changed(where, start) from None
        return data


def _code(error: BaseException) -> str:
    """The code of S3's answer, which s3fs keeps as the cause of its own error."""
    answer = getattr(error, "response", None) or getattr(error.__cause__, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def _s3_checksum(answer: Mapping[str, Any]) -> tuple[str, str] | None:
    """The checksum of a whole object; those of uploads in parts are checksums of checksums."""
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    for kind in ("CRC32C", "CRC32"):
        value = answer.get(f"Checksum{kind}")
        if value and "-" not in value:
            return kind.lower(), base64.b64decode(value).hex()
    return None


def _gone(error: FileNotFoundError) -> str:
    is_bucket = _code(error) == "NoSuchBucket" or "bucket" in str(error).lower()
    return "no such bucket" if is_bucket else "no such object"
