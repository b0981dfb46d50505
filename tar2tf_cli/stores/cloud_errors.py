"""obstore's exceptions as our errors: by the store's error code, else by the status, else by the network error."""

from __future__ import annotations

import html
import re
from typing import Final, NoReturn

from tar2tf_cli.errors import SourceError, changed
from tar2tf_cli.stores.network import wrong_scheme
from tar2tf_cli.stores.responses import HTTP_TO_HTTPS, check_status
from tar2tf_cli.stores.retries import Transient

__all__ = ["raise_as_ours", "sentence"]

_REGION: Final = "wrong region"
_BUCKET: Final = "no such bucket"
_TODO: Final = {_REGION: "set AWS_REGION to the bucket's region", _BUCKET: "check the URL and the endpoint"}
_MEANING: Final = {
    code: meaning
    for codes, meaning in (
        ("InvalidAccessKeyId XAdminUserNotFound", "wrong access key"),
        ("SignatureDoesNotMatch AuthenticationFailed", "wrong secret key"),
        ("ExpiredToken InvalidToken TokenRefreshRequired", "the credentials expired"),
        ("AccessDenied AuthorizationFailure AuthorizationPermissionMismatch", "permission denied"),
        ("AuthorizationHeaderMalformed PermanentRedirect IllegalLocationConstraintException", _REGION),
        ("NoSuchBucket ContainerNotFound InvalidBucketName InvalidResourceName", _BUCKET),
    )
    for code in codes.split()
}
"""What the codes of S3 and Azure mean: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html,
https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""
_NAMES: Final = (
    "names with //, /./, /../ or control characters cannot be used: write single slashes, rename such objects, or name "
    "a folder without them"
)
_MACHINE: Final = re.compile("169.254|/latest/(api|meta-data)/|computeMetadata|metadata/identity")
"""Where obstore asks for credentials on a cloud machine when it has found no others."""

_PROVIDER: Final = re.compile(r"External \w+ credential provider: (\w+): ([^\n]+)")
"""What obstore says when a function that gets credentials raises an exception: its type and words."""

_PASSING: Final = re.compile("Connect|Timeout|Transport|Endpoint")


def raise_as_ours(error: Exception, where: str, server: str, login: str, offset: int | None) -> NoReturn:
    """Raise our error for an exception of obstore.

    Args:
        error: obstore's exception, whose text is one sentence followed by a dump of its causes.
        where: the object or bucket.
        server: the server's URL or name.
        login: what to do about credentials.
        offset: where in the object reading was to begin.

    Raises:
        Transient: for failures that a retry may fix.
        NoSuchObject: for an object that does not exist.
        SourceError: for the rest.
    """
    text = str(error)
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidPathError":
        raise SourceError(sentence(error), shard=where, hint=_NAMES) from None
    status = re.search(r"(?:status code: |\(code: )(\d{3})", text)
    code, message = _between("Code", text), _between("Message", text)
    if meaning := _MEANING.get("PermanentRedirect" if "BareRedirect" in text else code):
        words = f"{meaning}: {message}" if message else meaning
        raise SourceError(words, shard=where, hint=_TODO.get(meaning, login)) from None
    if status and status[1] in ("412", "416"):
        raise changed(where, offset) from None
    if found := _PROVIDER.search(text):
        if _PASSING.search(found[1]):
            raise Transient(found[2], server) from None
        hint = "run `aws sso login`, or log in as your organisation does" if "SSO" in found[1] else login
        raise SourceError(f"no credentials could be obtained: {found[2]}", shard=where, hint=hint) from None
    if _MACHINE.search(text):
        raise SourceError("no credentials were found", shard=where, hint=login) from None
    if "token request" in text:
        asked = re.search(r"performing \w+ (https?://[^/\s]+)", text)
        if asked and (int(status[1]) >= 500 if status else "HttpError" in text):
            raise Transient(f"no token for the credentials: {_reason(error)}", asked[1]) from None
        raise SourceError(f"the credentials are not accepted: {_reason(error)}", shard=where, hint=login) from None
    if HTTP_TO_HTTPS.search(text):
        raise wrong_scheme(server, "https") from None
    if status:
        check_status(int(status[1]), message, where, login if status[1] in ("401", "403") else None, server=server)
    if "InvalidMessage" in text:
        raise wrong_scheme(server, "http") from None
    if "InvalidCertificate" in text:
        hint = "set AWS_CA_BUNDLE or SSL_CERT_FILE to the server's CA"
        raise SourceError(f"TLS failed: {_reason(error)}", shard=where, hint=hint) from None
    if "TimedOut" in text or "kind: Timeout" in text:
        raise Transient("no answer in time", server) from None
    raise Transient(_reason(error), server) from None


def sentence(error: Exception) -> str:
    """Return the first sentence of an obstore error, without its URL, which may contain secrets."""
    first = str(error).partition("\n")[0]
    return re.sub(r"^Generic \w+ error: |.* in [\d.]+\S?s - |\S+://\S+", "", first).strip() or type(error).__name__


def _reason(error: Exception) -> str:
    """Return the root cause of an obstore error, in the system's words if there are any."""
    dump = str(error).partition("\n\nDebug source:")[2]
    words: list[str] = re.findall(r'(?:message|error): "([^"]+)"', dump)
    if words:
        return words[-1].rpartition(": ")[2]
    if found := re.search(r"InvalidCertificate\((?:\s*Other(?:Error)?\()*\s*(\w+)", dump):
        return f"the certificate is not accepted: {found[1]}"
    if "Incomplete" in dump:
        return "the connection broke off"
    return sentence(error)


def _between(tag: str, text: str) -> str:
    found = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
    return html.unescape(found[1]).strip().splitlines()[0].rstrip(". ") if found and found[1].strip() else ""
