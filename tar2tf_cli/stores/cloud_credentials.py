"""Credentials of each cloud that obstore does not find by itself.

obstore reads the variables AWS_*, GOOGLE_* and AZURE_*, Google's default credentials, and the metadata service of the
cloud machine it runs on. Added here: AWS profiles, single sign-on and roles, through boto3; the other credentials that
google-auth supports; and the region of a bucket.
"""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from typing import Any, Final

from tar2tf_cli.errors import UsageError
from tar2tf_cli.stores import network

__all__ = ["anonymous", "aws_provider", "google_provider", "region_of"]

AMAZON: Final = "https://s3.amazonaws.com"
_ENOUGH: Final = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE")
_PROFILES: Final = ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_LIFETIME: Final = timedelta(minutes=10)  # until boto3 is called again, which renews credentials about to expire


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
        raise UsageError(words, hint="check AWS_PROFILE; profiles need boto3: pip install boto3") from None


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
    import requests

    timeout = network.CONNECT_SECONDS, network.READ_SECONDS
    with contextlib.suppress(requests.RequestException):
        answer = requests.head(f"{AMAZON}/{bucket}", timeout=timeout, allow_redirects=False)
        if region := answer.headers.get("x-amz-bucket-region"):
            return {"region": region}
    return {}
