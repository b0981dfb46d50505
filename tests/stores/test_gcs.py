"""Shards in Google Cloud Storage."""

from __future__ import annotations

import pytest
import requests

from servers import Forwarder, serving
from sources import BucketSuite, PlainSuite
from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_source
from tar2tf_cli.stores.cloud import raise_mapped

pytestmark = pytest.mark.xdist_group("gcs")

TOKEN = "Generic GCS error: Error performing token request: Error performing POST https://tokens.example/t in 1ms - "
UNREACHABLE = (
    'HTTP error: error sending request\n\nDebug source:\nHttp(HttpError { kind: Connect, error: "dns: unknown" })'
)


@pytest.mark.parametrize(
    ("answer", "passes", "words"),
    [
        (UNREACHABLE, True, "could not get a token for the credentials: unknown"),
        (
            "Server returned non-2xx status code: 503 Service Unavailable: ",
            True,
            "could not get a token for the credentials",
        ),
        ("Server returned non-2xx status code: 400 Bad Request: invalid_grant", False, "credentials were rejected"),
    ],
)
def test_a_token_server_that_is_away_is_waited_for_and_one_that_refuses_is_not(
    answer: str, passes: bool, words: str
) -> None:
    with pytest.raises(Transient if passes else SourceError, match=words) as caught:
        raise_mapped(Exception(TOKEN + answer), "gs://b/x.tar", "Google Cloud Storage", "log in", None)
    assert not passes or caught.value.server == "https://tokens.example"  # type: ignore[union-attr]


class TestGcs(BucketSuite, PlainSuite):
    def address(self) -> str:
        return self.url

    @pytest.fixture
    def bucket(self, gcs: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs)
        self.url = gcs
        name = f"b{abs(hash(request.node.nodeid)):x}"
        requests.post(f"{gcs}/storage/v1/b", json={"name": name}, timeout=60).raise_for_status()
        return f"gs://{name}"

    def test_a_missing_bucket_is_an_error(self, bucket: str) -> None:
        with pytest.raises(SourceError) as caught:
            open_source("gs://no-such-bucket-anywhere").list(["*.tar"])
        assert caught.value.shard == "gs://no-such-bucket-anywhere"

    @pytest.mark.usefixtures("quick_retries")
    def test_an_answer_that_is_no_listing_is_an_error(self, bucket: str) -> None:
        self.put(bucket, "x.tar", b"x")
        self.put(bucket, "y.tar", b"y")

        class Stranger(Forwarder):
            url = self.url

            def do_GET(self) -> None:
                if "start-after" in self.path:
                    self.answer(200, {"Content-Type": "text/html"}, b"<html><body>sign in</body></html>")
                else:
                    super().do_GET()

        with serving(Stranger) as url, pytest.raises(SourceError, match="is not a listing; gave up"):
            open_source(bucket, endpoint=url).list(["*.tar"])

    def put(self, bucket: str, name: str, data: bytes) -> None:
        url = f"{self.url}/upload/storage/v1/b/{bucket.removeprefix('gs://')}/o"
        requests.post(url, params={"uploadType": "media", "name": name}, data=data, timeout=60).raise_for_status()


@pytest.mark.parametrize(("status", "hint"), [(401, "log in"), (403, "log in"), (404, None), (405, None)])
def test_only_refused_credentials_are_answered_with_how_to_log_in(status: int, hint: str | None) -> None:
    answer = f"Generic GCS error: Server returned non-2xx status code: {status} No: "
    with pytest.raises(SourceError) as caught:
        raise_mapped(Exception(answer), "gs://b/x.tar", "Google Cloud Storage", "log in", None)
    assert caught.value.hint == hint
