"""Where each cloud's users keep credentials, as far as obstore does not look there by itself.

obstore reads the variables AWS_*, GOOGLE_* and AZURE_*, Google's default credentials, and asks for those of the machine
that it runs on. Added here: the files of AWS (through boto3 if it is installed, which also knows single sign-on and
roles), the region of a bucket, connection strings of Azure, and other credentials of Google's, through google-auth.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from configparser import ConfigParser, Error
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from tar2tf_cli.errors import UsageError
from tar2tf_cli.stores import network

__all__ = ["anonymous", "azure_account", "google_provider", "s3_options", "s3_region"]

AMAZON: Final = "https://s3.amazonaws.com"
_LIFETIME: Final = timedelta(minutes=10)  # after which boto3 is asked again; it renews what is about to expire


def s3_options() -> dict[str, Any]:
    """A provider or keys from the files of AWS, where neither variables nor a role of this container give any."""
    given = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    files = [_aws_file("AWS_CONFIG_FILE", "config"), _aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials")]
    profile = os.environ.get("AWS_PROFILE")
    if any(map(os.environ.get, given)) or not (profile or any(map(os.path.exists, files))):
        return {}
    try:
        import boto3
    except ImportError:
        return _static_keys(files, profile or "default")
    try:
        session = boto3.Session()
        found = session.get_credentials()
    except Exception as error:  # of botocore: no such profile, a file that cannot be parsed
        raise UsageError(f"AWS: {error}", hint="check AWS_PROFILE and ~/.aws") from None
    region = {"region": session.region_name} if session.region_name else {}
    return {**region, "credential_provider": _provider(found)} if found else region


def _provider(credentials: Any) -> Callable[[], dict[str, Any]]:
    """What obstore calls for credentials, from those of boto3, which renews them."""

    def provide() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _LIFETIME,
        }

    return provide


def _aws_file(variable: str, name: str) -> str:
    return os.environ.get(variable) or os.path.expanduser(f"~/.aws/{name}")


def _static_keys(files: list[str], profile: str) -> dict[str, Any]:
    """The keys and the region of a profile that simply lists them."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(files)
    except Error as error:
        raise UsageError(f"AWS: {error.message.splitlines()[0]}") from None
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")
    found = {
        name.removeprefix("aws_"): parser[section][name]
        for section in (f"profile {profile}", profile)
        if parser.has_section(section)
        for name in names
        if name in parser[section]
    }
    if "access_key_id" not in found and os.environ.get("AWS_PROFILE"):
        raise UsageError(f"the AWS profile {profile!r} does not list its keys", hint="pip install boto3")
    return found


def s3_region(bucket: str) -> dict[str, str]:
    """The region of a bucket, which Amazon tells everybody; nothing when it cannot be asked."""
    import requests

    timeout = network.CONNECT_SECONDS, network.READ_SECONDS
    with contextlib.suppress(requests.RequestException):
        answer = requests.head(f"{AMAZON}/{bucket}", timeout=timeout, allow_redirects=False)
        if region := answer.headers.get("x-amz-bucket-region"):
            return {"region": region}
    return {}


def google_provider() -> Callable[[], dict[str, Any]] | None:
    """What obstore calls for a token, from google-auth; None when that is not installed or finds no credentials."""
    try:
        import google.auth
        from google.auth.transport.requests import Request

        found: Any = google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.read_write"])
    except Exception:  # ImportError, or one of google-auth's
        return None
    credentials = found[0]

    def provide() -> dict[str, Any]:
        credentials.refresh(Request())
        return {"token": credentials.token, "expires_at": credentials.expiry.replace(tzinfo=timezone.utc)}

    return provide


def anonymous() -> dict[str, Any]:
    """What an emulator of Google Cloud Storage takes for a token."""
    return {"token": "none", "expires_at": None}


def azure_account() -> dict[str, str]:
    """The account that AZURE_STORAGE_CONNECTION_STRING describes:
    https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
    """
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    parts = dict(part.partition("=")[::2] for part in text.strip(" ;").split(";"))
    known = {"AccountName": "account_name", "AccountKey": "account_key", "BlobEndpoint": "endpoint"}
    known["SharedAccessSignature"] = "sas_key"
    return {ours: parts[theirs] for theirs, ours in known.items() if theirs in parts}
