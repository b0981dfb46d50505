"""Control calls over requests: their errors are those of all other requests, and logins stay where they belong."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from scripted_server import SIZED, moved, scripted
from servers import faulty_server, nobody_listens, self_signed
from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.control import Answer, ask

TOKEN = {"Authorization": "Bearer a"}


def called(url: str, **how: object) -> Answer:
    return ask("GET", url, timeout=(5, 1), **how)  # type: ignore[arg-type]


def test_an_answer_has_status_text_and_the_server_that_gave_it() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nwait"
    with scripted([busy]) as server:
        answer = ask("PUT", f"{server.url}/v1/etl", {"name": "x"}, timeout=(5, 5), headers=TOKEN)
        assert answer[0:1] + answer[2:] == (503, "wait", server.url, 7)
        assert b"\r\nAuthorization: Bearer a\r\n" in server.requests[0]
        assert b"application/json" in server.requests[0]


def test_a_token_takes_the_place_of_a_login_in_netrc(netrc: Callable[[str], None]) -> None:
    netrc("127.0.0.1")
    with scripted([SIZED]) as server:
        called(server.url, headers=TOKEN)
        assert b"\r\nAuthorization: Bearer a\r\n" in server.requests[0]


def test_a_token_is_not_sent_where_its_server_redirects_to() -> None:
    with scripted([SIZED]) as other, scripted(moved(other)) as server:
        assert called(server.url, headers=TOKEN).server == other.url
        assert b"\r\nAuthorization: Bearer a\r\n" in server.requests[0]
        assert b"Bearer" not in other.requests[0]


def test_a_server_that_is_not_there_is_a_failure_that_passes() -> None:
    with nobody_listens() as port, pytest.raises(Transient, match=r"^Connection refused$") as caught:
        called(f"http://127.0.0.1:{port}")
    assert caught.value.server == f"http://127.0.0.1:{port}"


def test_a_server_that_says_nothing_is_a_failure_that_passes() -> None:
    with scripted([b""]) as server, pytest.raises(Transient, match=r"no answer in time|the connection was lost"):
        called(server.url)


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = pytest.raises(Transient, match=r"^the proxy: Connection refused$")
    with nobody_listens() as port, refused:
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        called("http://shards.example.org/x")


def test_http_where_https_is_spoken_and_the_reverse_are_errors(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*self_signed(tmp_path))
    with faulty_server() as server, pytest.raises(SourceError, match="speaks http, not https"):
        called(server.url.replace("http", "https"))
    with faulty_server(tls) as server, pytest.raises((SourceError, Transient)):
        called(server.url.replace("https", "http"))


def test_a_certificate_that_nobody_signed_is_an_error_at_once(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = self_signed(tmp_path)
    tls.load_cert_chain(certificate, key)
    with faulty_server(tls) as server:
        with pytest.raises(SourceError, match=r"TLS failed: .*certificate") as caught:
            called(server.url, tls_hint="trust it")
        assert caught.value.hint == "trust it"
        assert called(server.url, verify=str(certificate)).status == 404


@pytest.mark.parametrize("url", ["http://:80", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        called(url)
