"""URLs of buckets: what is shown and recorded of them never has their secrets."""

from __future__ import annotations

import pytest

from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.urls import as_recorded, check_url, is_remote, server_of, without_secrets

SHOWN = {
    "a/b?c=d": "a/b?c=d",
    "user@host:a": "user@host:a",
    "s3://bucket/a@b/what?": "s3://bucket/a@b/what?",
    "s3://bucket/a?*.tar": "s3://bucket/a?*.tar",
    "s3://bucket/a#b": "s3://bucket/a#b",
    "s3://bucket/a?endpoint=x": "s3://bucket/a",
    "s3://bucket/a?x-y.z~w=1\nb": "s3://bucket/a",
    "s3://key:sec/ret@bucket/a": "s3://bucket/a",
    "s3://key@bucket/a": "s3://bucket/a",
    "ais://user:secret@bucket": "ais://bucket",
    **{
        f"{scheme}://{given}": f"{scheme}://{shown}"
        for scheme in ("http", "https")
        for given, shown in {
            "host/a@b": "host/a@b",
            "host:80/a?token": "host:80/a",
            "host/a?sig=x@y": "host/a",
            "host/a#secret": "host/a",
            "host/a?x\ny": "host/a",
            "user@host": "host",
            "user:se:c@ret@host:1/a": "host:1/a",
        }.items()
    },
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items())
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
    assert without_secrets(shown) == shown
    if url == shown or url.startswith("http"):
        check_url(url)
        return
    with pytest.raises(UsageError) as caught:
        check_url(url)
    hint = "give credentials as for the store's own tools: by environment, profile or token file"
    assert caught.value.sentence == f"the URL {shown} must not contain a user, password or query; {hint}"


@pytest.mark.parametrize(
    ("bucket", "recorded"),
    [
        ("shards", "shards"),
        ("./shards", "shards"),
        ("shards/", "shards"),
        (".//shards/./a//", "shards/a"),
        ("./~a", "./~a"),
        ("./-a", "./-a"),
        ("~a", "~a"),
        ("./", "."),
        ("", "."),
        ("/", "/."),
        ("/a/../b/", "/a/../b"),
        ("s3://bucket/a//", "s3://bucket/a"),
        ("https://user@host/a/?b", "https://host/a"),
    ],
)
def test_a_bucket_is_recorded_in_one_spelling(bucket: str, recorded: str) -> None:
    assert as_recorded(bucket) == recorded


def test_a_url_has_a_scheme() -> None:
    assert [is_remote(bucket) for bucket in ("s3://a", "a://", "a:/b", "a", "-")] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://host", "http://host"),
        ("HTTPS://user:secret@Host:443/a?b#c", "HTTPS://Host:443"),
        ("https://host?a@b", "https://host"),
        ("https://[::1]:8080/a\nb", "https://[::1]:8080"),
    ],
)
def test_a_server_is_scheme_host_and_port(url: str, server: str) -> None:
    assert server_of(url) == server


@pytest.mark.parametrize(
    "url", ["ftp://host", "https://", "https:///a", "host", "https://user:secret@", " https://host"]
)
def test_what_is_no_server_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        server_of(url)
    assert caught.value.sentence == "the address, or where it redirects to, is not a valid URL"
