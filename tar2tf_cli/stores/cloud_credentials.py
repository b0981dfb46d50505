"""Credentials of each cloud that obstore does not find by itself.

obstore reads the variables AWS_*, GOOGLE_* and AZURE_*, Google's default credentials, and the metadata service of the
cloud machine it runs on. Added here: the keys in AWS's files; single sign-on and roles, through boto3; the other
credentials that google-auth supports; and the region of a bucket.
"""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from typing import Any, Final

from tar2tf_cli.errors import Tar2tfError, UsageError
from tar2tf_cli.stores import network
from tar2tf_cli.stores.retries import Transient

__all__ = ["anonymous", "aws_endpoint", "aws_keys", "aws_provider", "google_provider", "region_of"]

AMAZON: Final = "https://s3.amazonaws.com"
_ENOUGH: Final = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
_PROFILES: Final = ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_SHARED: Final = "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"
_CONFIG: Final = "AWS_CONFIG_FILE", "~/.aws/config"
_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_OTHERS: Final = ("role_arn", "web_identity_token_file", "credential_process", "login_session", "sso_")
_LIFETIME: Final = timedelta(minutes=10)  # until boto3 is called again, which renews credentials about to expire


def aws_keys() -> dict[str, str]:
    """Return the keys and the region of the profile in AWS's files; nothing if variables have keys.

    Nothing either if boto3 has to be asked, for a role, single sign-on or a command that prints keys:
    https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
    """
    if any(map(os.environ.get, _ENOUGH)):
        return {}
    shared, config = _profile()
    keys = shared if _KEYS[0] in shared else config
    if not all(map(keys.get, _KEYS[:2])) or any(key.startswith(_OTHERS) for key in (*shared, *config)):
        return {}
    found = {key: keys[key] for key in _KEYS if keys.get(key)}
    region = shared.get("region") or config.get("region")
    if region and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        found["region"] = region
    return found


def aws_endpoint() -> str | None:
    """Return the address of the server that the profile in AWS's files names, such as one's own; None for Amazon."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    shared, config = _profile()
    return config.get("endpoint_url") or shared.get("endpoint_url")


def _profile() -> tuple[dict[str, str], dict[str, str]]:
    """Return what AWS's file of credentials and its configuration have for the profile."""
    name = os.environ.get("AWS_DEFAULT_PROFILE") or os.environ.get("AWS_PROFILE") or "default"
    shared, config = _sections(*_SHARED), _sections(*_CONFIG)
    return shared.get(name, {}), config.get(f"profile {name}") or config.get(name, {})


def _sections(variable: str, path: str) -> dict[str, dict[str, str]]:
    """Return the sections of one of AWS's files; none if there is no such file, or it cannot be read."""
    file = os.path.expanduser(os.environ.get(variable) or path)
    if not os.path.isfile(file):
        return {}
    from configparser import Error, RawConfigParser

    parser = RawConfigParser(default_section="")
    with contextlib.suppress(Error, UnicodeDecodeError):
        parser.read(file, "utf-8")
        return {name: dict(parser[name]) for name in parser.sections()}
    return {}


def aws_provider() -> Any:
    """Return a function that gets obstore credentials from boto3, if AWS's files may hold some and variables do not.

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
            network.file_of(variable)
        words = "AWS's configuration holds no credentials" if "Received None" in str(error) else f"AWS: {error}"
        hint = "check AWS_PROFILE; roles and single sign-on need boto3: pip install boto3"
        raise UsageError(words, hint=hint) from None


def google_provider() -> Any:
    """Return a function that gets a token from google-auth for obstore; None without google-auth or credentials."""
    with contextlib.suppress(Exception):
        from obstore.auth.google import GoogleCredentialProvider

        return GoogleCredentialProvider()
    return None


def anonymous() -> dict[str, Any]:
    """Return a token that an emulator of Google Cloud Storage accepts."""
    return {"token": "none", "expires_at": None}


def region_of(bucket: str) -> dict[str, str]:
    """Look up the region of a bucket, which Amazon makes public; nothing when it cannot be reached."""
    from tar2tf_cli.stores.web import WebClient

    with contextlib.suppress(Transient, Tar2tfError):
        answer = WebClient().send("HEAD", f"{AMAZON}/{bucket}", follow=False)
        answer.close()
        if region := answer.headers.get("x-amz-bucket-region"):
            return {"region": region}
    return {}
