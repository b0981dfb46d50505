"""Amazon S3, Google Cloud Storage and Azure Blob Storage, through obstore.

A file is uploaded atomically, in one PUT from a memory map. A killed process leaves no traces, whereas a multipart
upload would leave hidden parts that cost money: it is used only for files too large for one request, after aborting
earlier multipart uploads of the object. The mapped pages belong to the page cache: they count as resident, up to the
size of the file, but the system can reclaim them at any time.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import html
import importlib
import mmap
import os
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import cached_property, partial
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, NoReturn, TypedDict
from urllib.parse import quote, urlsplit

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, NoSuchObject, ObjectExists, Transient
from tar2tf_cli.errors import SourceError, Tar2tfError, UsageError, changed, machine_error
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores import retries as network
from tar2tf_cli.stores.client import ClientStore
from tar2tf_cli.stores.control import ask
from tar2tf_cli.stores.retries import (
    HTTP_TO_HTTPS,
    TRANSIENT,
    call_within_limit,
    check_status,
    tls_failed,
    wrong_scheme,
)
from tar2tf_cli.stores.transfer import ResumingStream, crc32c_of

_modules: Final[dict[int, ModuleType]] = {}  # by process id
_library: Final[list[str]] = []  # the path of the compiled module as installed
runtime_memory: Final[list[int]] = []  # descriptor of the in-memory file that forked processes share


def obstore_store() -> ModuleType:
    """Return the module `obstore.store`, safe to use in this process; only one thread at a time may call this.

    A tokio runtime that was started before a fork hangs in the forked process
    (https://github.com/tokio-rs/tokio/issues/4301), and each loaded copy of obstore's library has its own.

    Raises:
        UsageError: when a forked process cannot load a copy.
    """
    if os.getpid() not in _modules:
        if _modules:
            _load_a_copy()
        _modules[os.getpid()] = importlib.import_module("obstore.store")
        _library[:] = _library or [str(sys.modules["obstore._obstore"].__file__)]
        with suppress(AttributeError, OSError):  # not available on every system or in every sandbox
            runtime_memory[:] = [os.memfd_create("obstore")]
    return _modules[os.getpid()]


def _load_a_copy() -> None:
    """Load obstore's library from a copy of its file, as the dynamic linker would return the one already loaded."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    with suppress(ImportError, OSError, IndexError):
        return _load(_copy_in_memory)
    try:
        return _load(_copy_on_disk)
    except (ImportError, OSError) as error:
        hint = "set TMPDIR to a folder that has 16 MB of space and is not mounted with noexec"
        raise UsageError(f"obstore cannot be loaded in a worker process: {error}", hint=hint) from None


def _load(copy: Callable[[], AbstractContextManager[str]]) -> None:
    with copy() as path:
        loader = ExtensionFileLoader("obstore._obstore", path)
        module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
        loader.exec_module(module)
    sys.modules[loader.name] = module


@contextmanager
def _copy_in_memory() -> Iterator[str]:
    """Yield the path of an in-memory copy of obstore's library, which the first forked process makes for all."""
    import shutil  # takes 10 ms, and most processes do not need it

    descriptor = runtime_memory.pop()
    path = f"/proc/{os.getpid()}/fd/{descriptor}"  # new in each process, or the linker would reuse the library
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_size != os.stat(_library[0]).st_size:
            shutil.copyfile(_library[0], path)  # closing the file releases the lock
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def _copy_on_disk() -> Iterator[str]:
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copy(_library[0], folder)


_REGION: Final = "wrong region"
_BUCKET: Final = "no such bucket"
_CLOCK: Final = "this machine's clock differs from the server's"
_TODO: Final = {
    _REGION: "set AWS_REGION to the bucket's region",
    _BUCKET: "check the URL and the endpoint",
    _CLOCK: "set the clock, then run the same command",
}
_MEANING: Final = {
    code: meaning
    for codes, meaning in (
        ("InvalidAccessKeyId XAdminUserNotFound", "wrong access key"),
        ("SignatureDoesNotMatch AuthenticationFailed", "wrong secret key"),
        ("ExpiredToken InvalidToken TokenRefreshRequired", "the credentials expired"),
        ("RequestTimeTooSkewed RequestExpired", _CLOCK),
        ("AccessDenied AuthorizationFailure AuthorizationPermissionMismatch", "permission denied"),
        ("AuthorizationHeaderMalformed PermanentRedirect IllegalLocationConstraintException", _REGION),
        ("NoSuchBucket ContainerNotFound InvalidBucketName InvalidResourceName", _BUCKET),
    )
    for code in codes.split()
}
"""Meanings of the codes of S3 and Azure: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html,
https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""
_NAMES: Final = (
    "names with //, /./, /../ or control characters cannot be used: write single slashes, rename such objects, or name "
    "a folder without them"
)
_MACHINE: Final = re.compile("169.254|/latest/(api|meta-data)/|computeMetadata|metadata/identity")
"""Addresses at which obstore asks for credentials on a cloud machine when it has found no others."""

_PROVIDER: Final = re.compile(r"External \w+ credential provider: (\w+): ([^\n]+)")
"""Message of obstore when a function that gets credentials raises an exception: its type and words."""

_PASSING: Final = re.compile("Connect|Timeout|Transport|Endpoint")


def raise_mapped(error: Exception, where: str, server: str, login: str, offset: int | None) -> NoReturn:
    """Raise our error for an obstore exception.

    Args:
        error: obstore's exception, whose text is one sentence followed by a dump of its causes.
        where: the object or bucket.
        server: the server's URL or name.
        login: the hint about credentials.
        offset: the requested offset in the object.

    Raises:
        Transient: for failures that a retry may fix.
        NoSuchObject: for an object that does not exist.
        SourceError: for all other failures.
    """
    text = str(error)
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidPathError":
        raise SourceError(sentence(error), shard=where, hint=_NAMES) from None
    status = re.search(r"(?:status code: |\(code: )(\d{3})", text)
    code, message = _between("Code", text), _between("Message", text)
    if type(error).__name__ == "AlreadyExistsError":
        raise ObjectExists("already exists", shard=where) from None
    if meaning := _MEANING.get("PermanentRedirect" if "BareRedirect" in text else code):
        words = f"{meaning}: {message}" if message else meaning
        raise SourceError(words, shard=where, hint=_TODO.get(meaning, login)) from None
    if status and status[1] in ("412", "416"):
        raise changed(where, offset) from None
    if match := _PROVIDER.search(text):
        if _PASSING.search(match[1]):
            raise Transient(match[2], server) from None
        hint = "run `aws sso login`, or log in as your organisation does" if "SSO" in match[1] else login
        raise SourceError(f"no credentials could be obtained: {match[2]}", shard=where, hint=hint) from None
    if _MACHINE.search(text):
        raise SourceError("no credentials were found", shard=where, hint=login) from None
    if "token request" in text:
        asked = re.search(r"performing \w+ (https?://[^/\s]+)", text)
        if asked and (int(status[1]) >= 500 if status else "HttpError" in text):
            raise Transient(f"could not get a token for the credentials: {_reason(error)}", asked[1]) from None
        raise SourceError(f"the credentials were rejected: {_reason(error)}", shard=where, hint=login) from None
    if f" {_NOWHERE.removeprefix('http://')}," in text:
        hint = "give the address that it redirects to as the endpoint, if you trust it with your credentials"
        raise SourceError("the server redirects to another host", shard=where, hint=hint) from None
    if HTTP_TO_HTTPS.search(text):
        raise wrong_scheme(server, "https") from None
    if status:
        check_status(int(status[1]), message, where, login if status[1] in ("401", "403") else None, server=server)
    if "InvalidMessage" in text:
        raise wrong_scheme(server, "http") from None
    if "InvalidCertificate" in text:
        hint = "set AWS_CA_BUNDLE or SSL_CERT_FILE to the server's CA"
        raise tls_failed(where, _reason(error), hint) from None
    if "TimedOut" in text or "kind: Timeout" in text:
        raise Transient("no answer in time", server) from None
    raise Transient(_proxy(text) + _reason(error), server) from None


def _proxy(text: str) -> str:
    """Return a phrase that names the proxy, if it is the proxy that could not be reached; otherwise nothing."""
    asked = re.search(r"performing \w+ (https?)://([^/:\s]+)", text)
    proxy = _proxy_for(*asked.groups()) if asked and "kind: Connect" in text else ""
    return f"proxy {without_secrets(proxy).partition('://')[2]}: " if proxy else ""


def _proxy_for(scheme: str, host: str) -> str:
    """Return the proxy that the environment configures for a server; empty if there is none."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""  # saves an import
    from urllib.request import getproxies, proxy_bypass

    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


def sentence(error: Exception) -> str:
    """Return the first sentence of an obstore error, without its URL, which may contain secrets."""
    first = str(error).partition("\n")[0]
    return re.sub(r"^Generic \w+ error: |.* in [\d.]+\S?s - |\S+://\S+", "", first).strip() or type(error).__name__


def _reason(error: Exception) -> str:
    """Return the root cause of an obstore error, as the operating system phrases it if it does."""
    dump = str(error).partition("\n\nDebug source:")[2]
    words: list[str] = re.findall(r'(?:message|error): "([^"]+)"', dump)
    if words:
        return words[-1].rpartition(": ")[2]
    if match := re.search(r"InvalidCertificate\((?:\s*Other(?:Error)?\()*\s*(\w+)", dump):
        return f"the certificate was rejected: {match[1]}"
    if "Incomplete" in dump:
        return "the connection was lost"
    return sentence(error)


def _between(tag: str, text: str) -> str:
    match = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
    return html.unescape(match[1]).strip().splitlines()[0].rstrip(". ") if match and match[1].strip() else ""


AMAZON: Final = "https://s3.amazonaws.com"
_ENOUGH: Final = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
_PROFILES: Final = ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_SHARED: Final = "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"
_CONFIG: Final = "AWS_CONFIG_FILE", "~/.aws/config"
_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_OTHERS: Final = ("role_arn", "web_identity_token_file", "credential_process", "login_session", "sso_")
_LIFETIME: Final = timedelta(minutes=10)  # interval of calls to boto3, which renews credentials before they expire


def aws_keys() -> dict[str, str]:
    """Return the keys and the region of the profile in AWS's files; nothing if environment variables have keys.

    Return nothing, either, if only boto3 can get them, for a role, single sign-on or a command that prints keys:
    https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
    """
    if any(map(os.environ.get, _ENOUGH)):
        return {}
    shared, config = _profile()
    keys = shared if _KEYS[0] in shared else config
    if not all(map(keys.get, _KEYS[:2])) or any(key.startswith(_OTHERS) for key in (*shared, *config)):
        return {}
    known = {key: keys[key] for key in _KEYS if keys.get(key)}
    region = shared.get("region") or config.get("region")
    if region and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        known["region"] = region
    return known


def aws_endpoint() -> str | None:
    """Return the endpoint that the profile in AWS's files configures, such as one's own server; None for Amazon."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    shared, config = _profile()
    return config.get("endpoint_url") or shared.get("endpoint_url")


def _profile() -> tuple[dict[str, str], dict[str, str]]:
    """Return the sections of the profile in AWS's credentials file and in its configuration file."""
    name = os.environ.get("AWS_DEFAULT_PROFILE") or os.environ.get("AWS_PROFILE") or "default"
    shared, config = _sections(*_SHARED), _sections(*_CONFIG)
    return shared.get(name, {}), config.get(f"profile {name}") or config.get(name, {})


def _sections(variable: str, path: str) -> dict[str, dict[str, str]]:
    """Return the sections of one of AWS's files; none if the file does not exist or cannot be read."""
    file = os.path.expanduser(os.environ.get(variable) or path)
    if not os.path.isfile(file):
        return {}
    from configparser import Error, RawConfigParser  # the import takes 8 ms, only for users who have such files

    parser = RawConfigParser(default_section="")
    with contextlib.suppress(Error, UnicodeDecodeError):
        parser.read(file, "utf-8")
        return {name: dict(parser[name]) for name in parser.sections()}
    return {}


def aws_provider() -> object | None:
    """Return a function that gets obstore credentials from boto3, if only AWS's files may hold some; otherwise None.

    Raises:
        UsageError: when a profile is requested and boto3 is not installed or does not find it.
    """
    asked = any(map(os.environ.get, _PROFILES))
    if any(map(os.environ.get, _ENOUGH)) or not (asked or os.path.isdir(os.path.expanduser("~/.aws"))):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider(ttl=_LIFETIME)
    except Exception as error:  # boto3 is not installed, or finds no credentials or no such profile
        if not asked:
            return None
        for variable in _PROFILES[1:]:
            network.path_from_env(variable)
        words = "AWS's configuration holds no credentials" if "Received None" in str(error) else f"AWS: {error}"
        hint = "check AWS_PROFILE; roles and single sign-on need boto3: pip install boto3"
        raise UsageError(words, hint=hint) from None


def google_provider() -> object | None:
    """Return a function that gets a token from google-auth for obstore; None without google-auth or credentials."""
    with contextlib.suppress(Exception):
        from obstore.auth.google import GoogleCredentialProvider

        return GoogleCredentialProvider()
    return None


def anonymous() -> dict[str, object]:
    """Return a token that an emulator of Google Cloud Storage accepts."""
    return {"token": "none", "expires_at": None}


def region_of(bucket: str) -> dict[str, str]:
    """Look up the region of a bucket, which Amazon makes public; return nothing if Amazon cannot be reached."""
    seconds = network.CONNECT_SECONDS, network.READ_SECONDS
    with contextlib.suppress(Transient, Tar2tfError):
        answer = ask("HEAD", f"{AMAZON}/{bucket}", timeout=seconds, follow=False)
        if region := answer.headers.get("x-amz-bucket-region"):
            return {"region": region}
    return {}


_MD5: Final = re.compile(r"[0-9a-f]{32}")
_NOWHERE: Final = "http://127.0.0.1:1"  # a privileged port on which no service listens
_CLOUDS: Final = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PAGE: Final = 1000
_PAGE_BYTES: Final = 1 << 19  # maximum size of a page
_BEGINNING: Final = 1 << 10  # bytes that identify a listing
PART: Final = 64 << 20
_COPY_MINUTES: Final = 32
_FILE: Final = re.compile(r"\.(tar(\.\w+)?|tgz|tfrecords?|record|idx|json)$")  # suffixes that no folder has
CA_VARIABLES: Final = ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class ObjectMeta(TypedDict):
    """An object as obstore describes it."""

    path: str
    size: int
    e_tag: str | None


class CloudStore(ClientStore):
    """A bucket accessed through obstore; names are relative to the folder in the URL, if any.

    Attributes:
        scheme: scheme of the bucket's URL.
        cloud: the cloud's name.
        login: the hint for missing or refused credentials.
        endpoints: variables with the address of a server other than the cloud's own, in order of precedence.
        one_put: the maximum number of bytes that one request may upload or copy.
        lists_blindly: whether obstore treats an answer that is not a listing as an empty listing.
        checksum: the kind of checksum that the cloud keeps of an object.
    """

    scheme: ClassVar[str]
    cloud: ClassVar[str]
    login: ClassVar[str]
    endpoints: ClassVar[tuple[str, ...]]
    one_put: ClassVar[int]
    lists_blindly: ClassVar[bool] = True
    checksum: ClassVar[str] = "md5"
    may_stall = True

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        name, _, folder = bucket.partition("://")[2].rstrip("/").partition("/")
        if not re.fullmatch(r"[A-Za-z0-9_.$-]+", name):
            raise UsageError(f"{bucket!r} does not name a bucket", hint=f"write {self.scheme}://BUCKET/FOLDER")
        super().__init__(bucket, f"{folder}/" if folder else "")
        self._name = name
        self._endpoint = _address(next(filter(None, (endpoint, *map(os.environ.get, self.endpoints))), None))
        self.exclusive = not self._endpoint  # compatible servers may ignore conditions

    @property
    def _anonymous(self) -> bool:
        """Whether requests need no credentials."""
        return False

    @property
    def _plain(self) -> bool:
        """Whether the endpoint is plain HTTP, which does not protect bytes in transit."""
        return (self._endpoint or "").startswith("http://")

    @abstractmethod
    def make(self, stores: object, **options: object) -> object:
        """Create obstore's store; `stores` is obstore's module, `options` apply to every cloud."""

    def connect(self) -> object:
        """Create a client for requests that are answered at once; a stalled response fails after `READ_SECONDS`."""
        return self._connect(timeout=timedelta(days=7), read_timeout=timedelta(seconds=network.READ_SECONDS))

    def connect_for_uploads(self, minutes: int) -> Any:
        """Create a client for uploads and copies, which are answered only when they are complete."""
        return self._connect(timeout=timedelta(minutes=minutes))

    def _connect(self, **timeouts: timedelta) -> object:
        for variable in [name for name, value in os.environ.items() if not value and name.startswith(_CLOUDS)]:
            del os.environ[variable]  # obstore and boto3 misread an empty variable as an address, a file, or no proxy
        path = network.first_path_from_env(CA_VARIABLES)

        def refuse(error: Exception) -> None:
            if path or "No CA certificates" not in str(error):
                raise UsageError(sentence(error), shard=self.bucket, hint=self.login) from None

        with _obstore_errors(refuse):
            return self._connect_with_ca_file(path, timeouts)
        return self._connect_with_ca_file(network.certifi_bundle(), timeouts)  # minimal containers lack one

    def _connect_with_ca_file(self, path: str | None, timeouts: dict[str, timedelta]) -> object:
        """Create a client that accepts the system's CA certificates, and those in a file."""
        client: dict[str, Any] = {"allow_http": True, "connect_timeout": timedelta(seconds=network.CONNECT_SECONDS)}
        if path:
            client["root_certificate"] = Path(path).read_bytes()
        return self.make(obstore_store(), client_options={**client, **timeouts}, retry_config={"max_retries": 0})

    @property
    def _signing(self) -> dict[str, object]:
        return {"skip_signature": True} if self.unsigned else {}

    def list(self, prefix: str) -> Iterable[ObjectInfo]:
        """List the deepest folder in the prefix, up to the last name that can begin with the prefix."""
        whole = self.root + prefix
        with self._errors(self.bucket):
            for meta in self._list_completely(whole.rpartition("/")[0] or None, whole):
                name = meta["path"][len(self.root) :]
                # web consoles create folders as empty objects named with a final slash, which obstore strips
                if meta["path"].startswith(whole) and (meta["size"] or _FILE.search(name) or self.head(name)):
                    yield _info(name, meta)

    def _list_completely(self, folder: str | None, prefix: str) -> Iterator[ObjectMeta]:
        """List a folder to its end, or up to a sorted page that is past all names with a prefix.

        The end is listed again, from the last object on, until only that object is listed.

        obstore treats an answer that is not a page of a listing, such as the login page of a proxy, as an empty page.
        """
        last, before = "", ""
        while True:
            end, repeated = last, not last
            for page in self._pages(folder, before or last[:-1]):
                for meta in page:
                    path = meta["path"]
                    repeated |= path == end
                    if not end or path > end:
                        yield meta
                        last, before = max((last, before), (path, last), (last, path))
                if _is_past([meta["path"] for meta in page], prefix):
                    return
            if not (repeated if last else self._answers_with_listing()):
                raise Transient("the answer is not a listing", self.server)
            if last == end or not self.lists_blindly:
                return

    def _answers_with_listing(self) -> bool:
        """Whether the bucket answers with a real listing, since obstore treats any other answer as an empty one."""
        if not self.lists_blindly:
            return True
        from tar2tf_cli.stores.curl import WebClient

        with contextlib.suppress(Exception):  # not all credentials can sign a URL
            answer = WebClient().send("GET", self._signed(""))
            beginning = answer.read(_BEGINNING)
            answer.close()
            return answer.status != 200 or b"<ListBucketResult" in beginning
        return True

    def _signed(self, path: str) -> str:
        """Return a URL that is valid for a minute, to read the parts of an answer that obstore hides."""
        if self._endpoint and (self.unsigned or self._anonymous):
            return f"{self._endpoint}/{self._name}/{quote(path)}"
        import obstore

        url: str = obstore.sign(self.client, "GET", path, timedelta(minutes=1))
        return url

    def _pages(self, folder: str | None, after: str) -> Iterator[Sequence[ObjectMeta]]:
        pages = self.client.list(folder, offset=after or None, chunk_size=_PAGE)
        while (page := call_within_limit(lambda: next(pages, None), _PAGE_BYTES, self.server)) is not None:
            yield page

    def head(self, name: str) -> ObjectInfo | None:
        """Return size and ETag by HEAD, or by GET when that fails, since the answer to a HEAD has no error message."""
        with contextlib.suppress(NoSuchObject):
            try:
                with self._errors(self.locate(name)):
                    return _info(name, self.client.head(self.root + name))
            except SourceError:
                body = self.fetch(ObjectInfo(name, None, None), 0)
                return ObjectInfo(name, body.size, body.version)
        return None

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send one streaming GET, which the server refuses if the object was replaced."""
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

        body = Body(read, lambda: None, answer.range[0], info.size, info.version)
        if self._plain and size is None and info.size:  # TLS already protects the bytes
            body.checksum = self.expected_checksum(info)
            body.ask = partial(self._checksum, item.name)
        return body

    def expected_checksum(self, item: ObjectInfo) -> tuple[str, str] | None:
        """Return kind and value of the checksum to verify, or None; an empty value must first be requested."""
        return self.checksum, ""

    def _checksum(self, name: str) -> str | None:
        """Request the checksum of an object; None if the store has none, or the credentials cannot sign a URL."""
        from tar2tf_cli.stores.curl import WebClient

        try:
            url = self._signed(self.root + name)
        except Exception:
            return None
        answer = WebClient().send("GET", url, {"Range": "bytes=0-0"})
        answer.close()
        if answer.status in TRANSIENT:
            raise Transient(f"the server answered {answer.status}", self.server)
        return self.checksum_in(answer.headers) if answer.status in (200, 206) else None

    @abstractmethod
    def checksum_in(self, headers: Mapping[str, str]) -> str | None:
        """Return the hexadecimal checksum of the whole object from the headers of an answer."""

    def put(self, name: str, path: str, *, absent: bool = False) -> None:
        """Upload with one PUT, which S3 checks against a SHA-256; files too large for one request go in parts."""
        if absent:
            self.refuse_existing(name)  # some servers ignore the condition, and multipart uploads have none
        size = os.stat(path).st_size
        client = self.of_process(self.connect_for_uploads, 2 << (size >> 27).bit_length())  # at least 1 MiB/s
        with open(path, "rb") as file, self._errors(self.locate(name)):
            if size > self.one_put:
                self.abort_uploads(name)
                client.put(self.root + name, Path(path), chunk_size=PART, max_concurrency=2)
            else:  # the memory map is closed when obstore releases it
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
                client.put(self.root + name, data, use_multipart=False, mode="create" if absent else "overwrite")

    def abort_uploads(self, name: str) -> None:
        """Abort an object's multipart uploads that a killed run left, unless the store discards them by itself."""
        return

    def copy(self, name: str, target: str) -> None:
        """Copy within the store; objects too large for one request are downloaded and uploaded."""
        client = self.of_process(self.connect_for_uploads, _COPY_MINUTES)
        copied = self.head(name)
        with self._errors(self.locate(target)):
            if copied and copied.size and copied.size > self.one_put:
                self.abort_uploads(target)
                client.put(self.root + target, client.get(self.root + name).stream(PART), chunk_size=PART)
            else:
                client.copy(self.root + name, self.root + target)

    def remove(self, name: str) -> None:
        """Delete an object."""
        with contextlib.suppress(NoSuchObject), self._errors(self.locate(name)):
            self.client.delete(self.root + name)

    def locate(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.scheme}://{self._name}/{self.root}{name}"

    def _errors(self, where: str, offset: int | None = None) -> AbstractContextManager[None]:
        """Convert obstore's exceptions to `Transient` or one of our errors."""
        return _obstore_errors(lambda error: raise_mapped(error, where, self.server, self.login, offset))

    @property
    def server(self) -> str:
        """The address of the server, or the name of the cloud."""
        return without_secrets(self._endpoint or self.cloud)


@contextmanager
def _obstore_errors(convert: Callable[[Exception], None]) -> Iterator[None]:
    """Call `convert` with any exception of obstore, and suppress the exception if `convert` returns."""
    try:
        yield
    except (Tar2tfError, Transient, ModuleNotFoundError):
        raise
    except BaseException as error:
        if lacking := machine_error(error):
            raise lacking from None
        if not isinstance(error, Exception):  # a panic in Rust
            raise
        convert(error)


def _same_host_options(endpoint: str) -> dict[str, object]:
    """Return client options that allow connections to the endpoint's host only.

    obstore follows redirects, and sends the session token along in a header that its HTTP library does not recognise.
    So all other hosts are assigned a proxy that does not exist, unless there is a real one between this machine and the
    server.
    """
    url = urlsplit(endpoint)
    return {} if _proxy_for(url.scheme, url.hostname or "") else {"proxy_url": _NOWHERE, "proxy_excludes": url.hostname}


class S3Store(CloudStore):
    """`s3://`: Amazon S3, and compatible servers at AWS_ENDPOINT_URL or `--endpoint`.

    Attributes:
        follows_redirects: whether the server may send readers of an object to another server.
    """

    scheme = "s3"
    cloud = "Amazon S3"
    login = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket --no-sign-request"
    endpoints: ClassVar[tuple[str, ...]] = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    one_put = 5 << 30
    follows_redirects: ClassVar[bool] = False
    version_is = "md5"

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        super().__init__(bucket, endpoint)
        self._endpoint = self._endpoint or _address(aws_endpoint())
        self.exclusive = not self._endpoint

    def make(self, stores: Any, **options: Any) -> Any:
        """Create obstore's S3 store with the credentials of AWS's own tools; the region is looked up at Amazon."""
        keys = {} if self.unsigned else aws_keys()
        config = {"disable_bulk_delete": True, **self._signing, **keys, **self._region}
        if self._endpoint:
            config |= {"endpoint": self._endpoint, "aws_endpoint_url_s3": self._endpoint}
        provider = None if self.unsigned or keys else aws_provider()
        stays = self._endpoint and not (self.unsigned or self.follows_redirects)
        if self._endpoint and stays and (provider or any(map(os.environ.get, _ENOUGH[:1])) or keys):
            options["client_options"] |= _same_host_options(self._endpoint)
        return stores.S3Store(self._name, config=config, credential_provider=provider, **options)

    @cached_property
    def _region(self) -> dict[str, str]:
        """The bucket's region if it is at Amazon and could be looked up; forked processes inherit it."""
        return {} if self._endpoint else region_of(self._name)

    def expected_checksum(self, item: ObjectInfo) -> tuple[str, str] | None:
        """Return the ETag, which is the MD5 of all but large and specially encrypted objects.

        It is S3's only checksum; other hashing would cost twice what receiving does.
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
        """
        is_sum = _MD5.fullmatch(item.version or "") and os.environ.get("TAR2TF_CHECK_ETAG") != "0"
        return ("md5", str(item.version)) if is_sum else None

    def checksum_in(self, headers: Mapping[str, str]) -> str | None:
        """Return the ETag, or None if the user's own encryption key is involved, which makes it something else."""
        plain = headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
        own = headers.get("x-amz-server-side-encryption-customer-algorithm")
        item = ObjectInfo("", None, headers.get("ETag", "").strip('"'))
        return (self.expected_checksum(item) or (None, None))[1] if plain and not own else None

    def abort_uploads(self, name: str) -> None:
        """Abort multipart uploads through boto3, as obstore cannot list them, if it is installed and the user may."""
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
    checksum = "crc32c"

    @property
    def _anonymous(self) -> bool:
        return self._plain  # only emulators use plain HTTP

    def checksum_in(self, headers: Mapping[str, str]) -> str | None:
        """Return the object's CRC-32C."""
        return (crc32c_of(headers.get("x-goog-hash", "")) or (None, None))[1]

    def make(self, stores: Any, **options: Any) -> Any:
        """Create obstore's GCS store with Google's default credentials; without any for an emulator."""
        config = self._signing
        if self._endpoint:
            config |= {"base_url": self._endpoint}
            if self._anonymous and not self.unsigned:
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
    lists_blindly = False

    def checksum_in(self, headers: Mapping[str, str]) -> str | None:
        """Return the MD5, which is absent if the object was uploaded in parts without one."""
        value = headers.get("x-ms-blob-content-md5") or headers.get("Content-MD5", "")
        return base64.b64decode(value).hex() or None

    def make(self, stores: Any, **options: Any) -> Any:
        """Create obstore's Azure store with Azure's own environment variables."""
        config = self._signing | ({"endpoint": self._endpoint} if self._endpoint else {})
        return stores.AzureStore(self._name, config=config, **options)

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Send one streaming GET; Azure refuses deleted objects with the same status as replaced ones."""
        try:
            return super().fetch(item, start, size)
        except SourceError as error:
            if item.version and self.head(item.name) is None:
                raise NoSuchObject(error.message, shard=error.shard) from None
            raise


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


def _is_past(paths: Sequence[str], prefix: str) -> bool:
    """Whether a page of paths is sorted and ends after every path with a prefix; directory buckets do not sort."""
    ordered = len(paths) > 1 and all(one < other for one, other in pairwise(paths))
    return ordered and paths[-1] > prefix and not paths[-1].startswith(prefix)


def _info(name: str, meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(name, meta["size"], (meta["e_tag"] or "").strip('"') or None)
