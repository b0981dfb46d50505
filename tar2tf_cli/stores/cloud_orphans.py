"""Uploads in parts that a killed run left on S3, where they are hidden and cost money until they are aborted."""

from __future__ import annotations

import contextlib

__all__ = ["abort_uploads"]


def abort_uploads(bucket: str, key: str, endpoint: str | None, region: str | None) -> None:
    """Abort the unfinished uploads of one object, which obstore cannot list.

    Does nothing where boto3 is not installed, or the user may not list or abort uploads.

    Args:
        bucket: the bucket.
        key: the object's name in it.
        endpoint: the server's URL; None for Amazon's own.
        region: the bucket's region; None for the one in the environment.
    """
    with contextlib.suppress(Exception):
        import boto3

        client = boto3.Session().client("s3", endpoint_url=endpoint, region_name=region)
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
        for upload in [upload for page in pages for upload in page.get("Uploads", ())]:
            if upload["Key"] == key:
                client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])
