"""Buckets of the Hugging Face Hub, through its S3 endpoint, which redirects reads to another server.

https://huggingface.co/docs/hub/storage-buckets-s3 describes it.
"""

from __future__ import annotations

import os
import re
from typing import ClassVar, Final

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, NoSuchObject
from tar2tf_cli.errors import UsageError, changed
from tar2tf_cli.stores.cloud import S3Store

DOOR: Final = "https://s3.hf.co"
_URL: Final = re.compile(r"hf://buckets/([^/@]+)/([^/@]+(?:/.*)?)", re.DOTALL)


class HubBucketStore(S3Store):
    """A bucket of the Hugging Face Hub: `hf://buckets/USER/NAME[/FOLDER]`.

    Args:
        bucket: the URL.
        endpoint: the address of the S3 endpoint; by default HF_S3_ENDPOINT, or the Hub's own.

    Raises:
        UsageError: for a URL that does not name a bucket.
    """

    cloud = "the Hugging Face Hub"
    login = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the S3 credentials of your token, from the Hub's settings"
    )
    endpoints: ClassVar[tuple[str, ...]] = ()
    follows_redirects = True

    def __init__(self, bucket: str, endpoint: str | None = None) -> None:
        match = _URL.fullmatch(bucket)
        if match is None:
            hint = "write hf://buckets/USER/NAME or hf://buckets/USER/NAME/FOLDER"
            raise UsageError(f"{bucket!r} is not a bucket of the Hugging Face Hub", hint=hint)
        door = (endpoint or os.environ.get("HF_S3_ENDPOINT") or DOOR).rstrip("/")
        super().__init__(f"s3://{match[2]}", f"{door}/{match[1]}")
        self.bucket = bucket
        self._top = f"hf://buckets/{match[1]}/{self._name}"

    def make(self, stores: object, **options: object) -> object:
        """Create obstore's S3 store; refuse a session token, which redirects would send to another server."""
        if os.environ.get("AWS_SESSION_TOKEN"):
            hint = "unset AWS_SESSION_TOKEN; the Hub's credentials are a key and its secret"
            raise UsageError("a session token cannot be used for a bucket of the Hugging Face Hub", hint=hint)
        return super().make(stores, **options)

    def fetch(self, item: ObjectInfo, start: int, size: int | None = None) -> Body:
        """Check the object's version at the Hub, since the server with the bytes does not know it, then fetch."""
        now = self.head(item.name) if item.version else None
        if item.version and now is None:
            raise NoSuchObject("no such object", shard=self.locate(item.name))
        if now and now.version != item.version:
            raise changed(self.locate(item.name), start)
        body = super().fetch(item._replace(version=None), start, size)
        body.version, body.checksum, body.ask = item.version, None, None
        return body

    def locate(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self._top}/{self.root}{name}"
