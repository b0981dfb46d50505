"""Shards in S3."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from servers import cutting_proxy, free_ports
from sources import BIG, SourceSuite, read_all
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_source


class TestS3(SourceSuite):
    @pytest.fixture
    def bucket(self, s3_client: Any, request: pytest.FixtureRequest) -> str:
        self.client = s3_client
        name = f"b{abs(hash(request.node.nodeid)):x}"
        s3_client.create_bucket(Bucket=name)
        return f"s3://{name}"

    def put(self, bucket: str, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=bucket.removeprefix("s3://"), Key=name, Body=data)

    def test_a_listing_goes_on_over_pages(self, bucket: str) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: self.put(bucket, f"p-{number:04d}.tar", b"p"), range(1005)))
        assert len(open_source(bucket).list(["p-*.tar"])) == 1005

    @pytest.mark.usefixtures("hurry")
    @pytest.mark.parametrize("kind", ["close", "stall"])
    def test_a_broken_transfer_goes_on_where_it_stopped(self, bucket: str, s3: str, kind: str) -> None:
        self.put(bucket, "x.tar", BIG)
        cuts = [(1_000_000, kind), (2_000_000, kind)]
        with cutting_proxy(urlsplit(s3).port or 0, cuts) as port:
            source = open_source(bucket, endpoint=f"http://127.0.0.1:{port}")
            (item,) = source.list(["x.tar"])
            assert read_all(source, item) == BIG
        assert not cuts

    def test_a_missing_bucket_is_named(self, s3: str) -> None:
        with pytest.raises(SourceError) as caught:
            open_source("s3://there-is-no-such-bucket").list(["*.tar"])
        assert caught.value.shard == "s3://there-is-no-such-bucket"

    def test_a_wrong_endpoint_fails_within_seconds(self, s3: str) -> None:
        began = time.monotonic()
        with pytest.raises(SourceError, match="gave up after 5 attempts"):
            open_source("s3://b", endpoint=f"http://127.0.0.1:{free_ports(1)[0]}").list(["*.tar"])
        assert time.monotonic() - began < 15


class _Refusal(BaseHTTPRequestHandler):
    status, code, asked = 403, "AccessDenied", 0

    def do_GET(self) -> None:
        type(self).asked += 1
        body = f"<Error><Code>{self.code}</Code><Message>said the server</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("s3", "hurry")
@pytest.mark.parametrize(
    ("status", "code", "words", "attempts"),
    [
        (403, "AccessDenied", "permission denied", 1),
        (403, "NotKnownToUs", r"permission denied \(403\): said the server", 1),
        (400, "ExpiredToken", "the credentials expired: said the server", 1),
        (403, "InvalidAccessKeyId", "wrong access key: said the server", 1),
        (403, "SignatureDoesNotMatch", "wrong secret key: said the server", 1),
        (400, "AuthorizationHeaderMalformed", "wrong region: said the server", 1),
        (301, "PermanentRedirect", "wrong region", 1),
        (404, "NoSuchBucket", "no such bucket", 1),
        (503, "SlowDown", "gave up after 5 attempts", 5),
    ],
)
def test_a_refusal_of_s3_is_one_clear_error(status: int, code: str, words: str, attempts: int) -> None:
    handler = type("Handler", (_Refusal,), {"status": status, "code": code, "asked": 0})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        with pytest.raises(SourceError, match=words) as caught:
            open_source("s3://b", endpoint=f"http://127.0.0.1:{server.server_port}").list(["*.tar"])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert caught.value.shard == "s3://b"
    assert handler.asked == attempts
