"""Failures of obstore and requests in the words of tar2tf: the whole message, hint and location of each."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
import requests
from requests import exceptions

from tar2tf_cli.api.store import NoSuchObject, ObjectExists, Transient
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.cloud import raise_mapped, sentence
from tar2tf_cli.stores.control import ask, parsed

BEFORE = "Generic S3 error: Error performing GET https://s3.example/b/x in 1ms - "
HTTP = "Server returned non-2xx status code: {}"
PROVIDER = "Generic S3 error: External AWS credential provider: {}: {}\n"
NAMES = (
    "names with //, /./, /../ or control characters cannot be used: write single slashes, rename such objects, or name "
    "a folder without them"
)
TOKEN = "Generic GCS error: Error performing token request: Error performing POST https://tokens.example/t in 1ms - "


def answer(code: str, message: str = "", status: int = 403) -> str:
    words = f"<Message>{message}</Message>" if message else ""
    return f"{BEFORE}{HTTP.format(status)} X: <Error><Code>{code}</Code>{words}</Error>"


def debug(text: str, words: str = "HTTP error: error sending request") -> str:
    return f"{BEFORE}{words}\n\nDebug source:\n{text}"


class AlreadyExistsError(Exception):
    """Named as obstore's class is."""


class InvalidPathError(Exception):
    """Named as obstore's class is."""


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (
            ValueError('Path "a//b" contained empty path segment\nmore'),
            SourceError,
            'Path "a//b" contained empty path segment',
            NAMES,
        ),
        (InvalidPathError("no\nDebug"), SourceError, "no", NAMES),
        (AlreadyExistsError(answer("PreconditionFailed", status=412)), ObjectExists, "already exists", None),
        (answer("InvalidAccessKeyId", "Unknown."), SourceError, "wrong access key: Unknown", "log in"),
        (answer("XAdminUserNotFound"), SourceError, "wrong access key", "log in"),
        (answer("SignatureDoesNotMatch"), SourceError, "wrong secret key", "log in"),
        (answer("AuthenticationFailed", "a &lt;b&gt;\nTime:1"), SourceError, "wrong secret key: a <b>", "log in"),
        (answer("ExpiredToken"), SourceError, "the credentials expired", "log in"),
        (answer("InvalidToken"), SourceError, "the credentials expired", "log in"),
        (answer("TokenRefreshRequired"), SourceError, "the credentials expired", "log in"),
        (answer("AccessDenied"), SourceError, "permission denied", "log in"),
        (answer("AuthorizationPermissionMismatch"), SourceError, "permission denied", "log in"),
        (answer("PermanentRedirect", status=301), SourceError, "wrong region", "set AWS_REGION to the bucket's region"),
        (f"{BEFORE}BareRedirect", SourceError, "wrong region", "set AWS_REGION to the bucket's region"),
        (answer("NoSuchBucket", status=404), SourceError, "no such bucket", "check the URL and the endpoint"),
        (answer("InvalidResourceName", status=400), SourceError, "no such bucket", "check the URL and the endpoint"),
        (answer("Unheard", "Because.", 418), SourceError, "the server answered 418: Because", None),
        (
            answer("Unheard", status=401),
            SourceError,
            "the server requires credentials, or rejected the given ones (401)",
            "log in",
        ),
        (
            BEFORE + HTTP.format(412),
            SourceError,
            "changed while it was being read",
            "run the same command again when its writer is done",
        ),
        (
            BEFORE + HTTP.format(416),
            SourceError,
            "changed while it was being read",
            "run the same command again when its writer is done",
        ),
        (BEFORE + "(code: 404)", NoSuchObject, "no such object (404)", None),
        (
            PROVIDER.format("SSOTokenLoadError", "Token is old"),
            SourceError,
            "no credentials could be obtained: Token is old",
            "run `aws sso login`, or log in as your organisation does",
        ),
        (
            PROVIDER.format("ProfileNotFound", "No such profile"),
            SourceError,
            "no credentials could be obtained: No such profile",
            "log in",
        ),
        (
            BEFORE.replace("s3.example/b/x", "169.254.169.254/latest/api"),
            SourceError,
            "no credentials were found",
            "log in",
        ),
        (
            f"{TOKEN}{HTTP.format(400)} Bad: invalid_grant",
            SourceError,
            f"the credentials were rejected: {HTTP.format(400)} Bad: invalid_grant",
            "log in",
        ),
        (
            f"Generic GCS error: token request without address {HTTP.format(503)}",
            SourceError,
            f"the credentials were rejected: token request without address {HTTP.format(503)}",
            "log in",
        ),
        (
            BEFORE + "proxy 127.0.0.1:1, refused",
            SourceError,
            "the server redirects to another host",
            "give the address that it redirects to as the endpoint, if you trust it with your credentials",
        ),
        (
            BEFORE + "Client sent an HTTP request to an HTTPS server",
            SourceError,
            "the server speaks https, not http",
            "write https://s3.example",
        ),
        (
            debug("InvalidMessage(InvalidContentType)"),
            SourceError,
            "the server speaks http, not https",
            "write http://s3.example",
        ),
        (
            debug("InvalidCertificate(UnknownIssuer)"),
            SourceError,
            "TLS failed: the certificate was rejected: UnknownIssuer",
            "set AWS_CA_BUNDLE or SSL_CERT_FILE to the server's CA",
        ),
        (
            debug("InvalidCertificate(Other(OtherError(CaUsedAsEndEntity)))"),
            SourceError,
            "TLS failed: the certificate was rejected: CaUsedAsEndEntity",
            "set AWS_CA_BUNDLE or SSL_CERT_FILE to the server's CA",
        ),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_failure_of_a_cloud_that_lasts_is_named_with_the_next_step(
    error: Exception | str, kind: type[SourceError], message: str, hint: str | None
) -> None:
    with pytest.raises(SourceError) as caught:
        raise_mapped(
            Exception(error) if isinstance(error, str) else error, "s3://b/x", "https://s3.example", "log in", 7
        )
    found = caught.value
    assert (type(found), found.message, found.hint) == (kind, message, hint)


def test_an_object_that_changed_is_named_with_the_offset_that_was_asked_for() -> None:
    with pytest.raises(SourceError) as caught:
        raise_mapped(Exception(BEFORE + HTTP.format(412)), "s3://b/x", "https://s3.example", "log in", 7)
    assert (caught.value.shard, caught.value.offset) == ("s3://b/x", 7)


@pytest.mark.parametrize(
    ("text", "message", "server"),
    [
        (BEFORE + HTTP.format(503), "the server answered 503", "https://s3.example"),
        (answer("SlowDown", "Reduce.", 429), "the server answered 429: Reduce", "https://s3.example"),
        (PROVIDER.format("ConnectTimeoutError", "no route"), "no route", "https://s3.example"),
        (PROVIDER.format("EndpointConnectionError", "no name"), "no name", "https://s3.example"),
        (
            f"{TOKEN}{HTTP.format(500)}",
            "could not get a token for the credentials: Server returned non-2xx status code: 500",
            "https://tokens.example",
        ),
        (debug("kind: Timeout"), "no answer in time", "https://s3.example"),
        (debug("TimedOut"), "no answer in time", "https://s3.example"),
        (debug('message: "os: Connection reset"'), "Connection reset", "https://s3.example"),
        (debug('error: "first"} error: "dns: last"'), "last", "https://s3.example"),
        (debug("IncompleteMessage"), "the connection was lost", "https://s3.example"),
        (debug("nothing known"), "HTTP error: error sending request", "https://s3.example"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_failure_of_a_cloud_that_may_pass_is_tried_again(text: str, message: str, server: str) -> None:
    with pytest.raises(Transient) as caught:
        raise_mapped(Exception(text), "s3://b/x", "https://s3.example", "log in", None)
    assert (str(caught.value), caught.value.server) == (message, server)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Generic S3 error: a\nb", "a"),
        ("Error performing GET https://me:pw@h/x in 1.5ms - refused", "refused"),
        ("cannot reach https://me:pw@h/x", "cannot reach"),
        ("", "Exception"),
    ],
)
def test_the_first_sentence_of_an_error_has_no_url(text: str, words: str) -> None:
    assert sentence(Exception(text)) == words


def raising(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def request(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(requests, "request", request)


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (
            exceptions.InvalidHeader("secret"),
            UsageError,
            "the address or a header of the request is not valid",
            "check the endpoint, and the token or password",
        ),
        (
            UnicodeEncodeError("latin-1", "é", 0, 1, "secret"),
            UsageError,
            "the address or a header of the request is not valid",
            "check the endpoint, and the token or password",
        ),
        (exceptions.TooManyRedirects("x"), SourceError, "the server redirects in a loop", None),
        (
            exceptions.SSLError("[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            SourceError,
            "the server speaks http, not https",
            "write http://h:1",
        ),
        (exceptions.SSLError("other"), SourceError, "TLS failed: the connection was lost", "trust it"),
        (
            exceptions.ConnectionError("BadStatusLine('\\x15\\x03\\x01')"),
            SourceError,
            "the server speaks https, not http",
            "write https://h:1",
        ),
    ],
)
def test_a_failure_of_a_control_request_that_lasts_is_named_with_the_next_step(
    error: Exception, kind: type[Exception], message: str, hint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, error)
    with pytest.raises((SourceError, UsageError)) as caught:
        ask("GET", "http://h:1/x", timeout=(1, 1), tls_hint="trust it")
    assert (type(caught.value), caught.value.message, caught.value.hint) == (kind, message, hint)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (exceptions.ConnectTimeout("x"), "no answer in time"),
        (exceptions.ReadTimeout("x"), "no answer in time"),
        (exceptions.ChunkedEncodingError("x"), "the connection was lost"),
        (exceptions.ConnectionError(OSError(errno.ECONNRESET, "other words")), "Connection reset by peer"),
        (exceptions.ConnectionError(socket.gaierror(-2, "Name or service not known")), "Name or service not known"),
        (exceptions.ProxyError("x"), "the proxy: the connection was lost"),
    ],
)
def test_a_failure_of_a_control_request_that_may_pass_is_tried_again(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, error)
    with pytest.raises(Transient) as caught:
        ask("GET", "http://me:secret@h:1/x", timeout=(1, 1))
    assert (str(caught.value), caught.value.server) == (message, "http://h:1")


@pytest.mark.parametrize(("text", "document"), [(b'{"a": 1}', {"a": 1}), ("[1]", {}), ('{"a"', {}), ("", {})])
def test_an_answer_that_is_no_json_object_is_an_empty_one(text: str | bytes, document: dict[str, int]) -> None:
    assert parsed(text) == document
