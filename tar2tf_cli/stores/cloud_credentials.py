"""Where each cloud's users keep credentials, as far as obstore does not look there by itself.

obstore reads the variables AWS_*, GOOGLE_* and AZURE_* and Google's default credentials, and asks the machine in the
cloud that it runs on. Added here: AWS's profiles, single sign-on and roles, through boto3; what google-auth can do; and
the region of a bucket.
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
_LIFETIME: Final = timedelta(minutes=10)  # until boto3 is asked again, which renews what is about to expire


def aws_provider() -> Any:
    """What obstore calls for credentials, by boto3, where the files of AWS may hold some and variables do not.

    Raises:
        UsageError: when a profile is asked for and boto3 is not installed, or does not find it.
    """
    asked = any(map(os.environ.get, _PROFILES))
    if any(map(os.environ.get, _ENOUGH)) or not (asked or os.path.isdir(os.path.expanduser("~/.aws"))):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider(ttl=_LIFETIME)
    except Exception as error:  # boto3 is not installed, finds nothing, or not that profile
        if not asked:
            return None
        raise UsageError(f"AWS: {error}", hint="check AWS_PROFILE; profiles need boto3: pip install boto3") from None


def google_provider() -> Any:
    """What obstore calls for a token, by google-auth; None when that is not installed or finds no credentials."""
    with contextlib.suppress(Exception):
        from obstore.auth.google import GoogleCredentialProvider

        return GoogleCredentialProvider()
    return None


def anonymous() -> dict[str, Any]:
    """What an emulator of Google Cloud Storage takes for a token."""
    return {"token": "none", "expires_at": None}


def region_of(bucket: str) -> dict[str, str]:
    """The region of a bucket, which Amazon tells everybody; nothing when it cannot be asked."""
    import requests

    timeout = network.CONNECT_SECONDS, network.READ_SECONDS
    with contextlib.suppress(requests.RequestException):
        answer = requests.head(f"{AMAZON}/{bucket}", timeout=timeout, allow_redirects=False)
        if region := answer.headers.get("x-amz-bucket-region"):
            return {"region": region}
    return {}
