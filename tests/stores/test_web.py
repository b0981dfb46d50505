"""Responses as servers may send them, and proxies, over connections that stay open."""

import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from scripted_server import OK, SIZED, moved, scripted
from servers import faulty_server, nobody_listens, self_signed
from tar2tf_cli.api.store import Transient
from tar2tf_cli.errors import SourceError, UsageError
from tar2tf_cli.stores.curl import WebClient, Window


def body(client: WebClient, url: str) -> bytes:
    response = client.send("GET", f"{url}/x")
    assert response.status == 200
    return response.read()


@pytest.mark.parametrize(
    "answer",
    [
        [SIZED],
        [SIZED[index : index + 1] for index in range(len(SIZED))],
        [OK + b"Content-Length: 5\r\n", b"\r\n", b"by", b"tes"],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + SIZED],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nby\r\n3;extension=1\r\ntes\r\n0\r\nTrailer: 1\r\n\r\n"],
        [OK + b"content-length:5\r\nX-Long: one\r\n two\r\n\r\nbytes"],
        [b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nbytes"],
        [OK.replace(b"\r", b"") + b"Content-Length: 5\n\nbytes"],
    ],
    ids=["whole", "bytes", "pieces", "information", "chunks", "folded", "no-reason", "line-feeds"],
)
def test_a_body_is_read_to_its_end_and_the_connection_is_used_again(answer: list[bytes]) -> None:
    with scripted(answer, answer, [SIZED]) as server:
        client = WebClient()
        assert [body(client, server.url) for _ in range(3)] == [b"bytes"] * 3
        assert server.connections == 1


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n", OK + b"Connection: close\r\n"])
def test_a_body_without_length_ends_with_its_connection(head: bytes) -> None:
    with scripted([head + b"\r\n", b"by", b"tes"], [SIZED]) as server:
        client = WebClient()
        assert body(client, server.url) == b"bytes"
        assert body(client, server.url) == b"bytes"
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nby",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
        b"220 mail.example.org ESMTP\r\n",
        OK + b"X: " + bytes(1 << 17) + b"\r\n\r\n",
    ],
    ids=["nothing", "half-a-head", "half-a-chunk", "no-chunk", "mail", "endless-head"],
)
def test_anything_else_can_be_tried_again(answer: bytes) -> None:
    with scripted([answer]) as server, pytest.raises(Transient):
        body(WebClient(), server.url)


@pytest.mark.parametrize(
    ("answer", "message"),
    [(b"220 mail.example.org ESMTP\r\n", "the answer is not HTTP"), (b"", "the connection was lost")],
)
def test_what_is_no_answer_is_named_with_its_server(answer: bytes, message: str) -> None:
    with scripted([answer]) as server, pytest.raises(Transient) as caught:
        body(WebClient(), server.url)
    assert (str(caught.value), caught.value.server) == (message, server.url)


def test_tls_where_http_was_asked_for_is_named() -> None:
    with scripted([b"\x15\x03\x03\x00\x02\x02\x50"]) as server, pytest.raises(SourceError) as caught:
        body(WebClient(), server.url)
    hint = server.url.replace("http:", "https:")
    assert (caught.value.message, caught.value.hint) == ("the server speaks https, not http", f"write {hint}")


def test_a_body_that_is_not_wanted_leaves_its_connection_to_the_next_request() -> None:
    long = OK + b"Content-Length: 8000000\r\n\r\n"
    with scripted([long, bytes(8_000_000)], [SIZED]) as server:
        client = WebClient()
        client.send("GET", server.url).drain()
        assert body(client, server.url) == b"bytes"
        assert server.connections == 1


def test_values_of_a_repeated_header_are_joined_and_names_have_no_case() -> None:
    with scripted([OK + b"Ais-Custom-Md: a=1\r\nais-custom-md:  b=2\r\nContent-Length: 0\r\n\r\n"]) as server:
        response = WebClient().send("GET", server.url)
        assert response.headers.get("AIS-Custom-MD") == "a=1, b=2"
        assert response.headers.get("ETag") is None
        response.close()


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_responses_have_no_body_whatever_they_announce(status: bytes) -> None:
    with scripted([b"HTTP/1.1 " + status + b"\r\nContent-Length: 9\r\n\r\n"], [SIZED]) as server:
        client = WebClient()
        assert client.send("GET", server.url).read() == b""
        assert body(client, server.url) == b"bytes"


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [("7", 7, 7), (formatdate(time.time() + 3000, usegmt=True), 1000, 3000), ("soon", 0, 0)],
    ids=["seconds", "a date", "no time"],  # the same in each process
)
def test_a_server_says_when_to_come_back(value: str, least: int, most: int) -> None:
    with scripted([f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()]) as server:
        response = WebClient().send("GET", server.url)
        assert (response.status, response.read()) == (503, b"")
        assert least <= response.retry_after <= most


def test_a_header_cannot_hold_another_one() -> None:
    with scripted([SIZED]) as server, pytest.raises(UsageError, match="line break"):
        WebClient({"Authorization": "Bearer a\r\nX: y"}).send("GET", server.url)


def test_a_header_cannot_hold_what_http_does_not_allow() -> None:
    with pytest.raises(UsageError, match="'日', which HTTP does not allow"):
        WebClient({"Authorization": "Bearer 日"}).send("GET", "http://127.0.0.1")


def test_an_address_need_not_be_ascii() -> None:
    with scripted([SIZED]) as server:
        assert WebClient({}).send("GET", f"{server.url}/日\udcff").status == 200


def sizes(*waits: float, status: int | None = 200) -> list[int]:
    """The sizes of a window after so many seconds, each for as many answers as it has."""
    window, found = Window(), []
    for seconds in waits:
        window.answered(status, seconds)
        for _ in range(window.size - 1):
            window.answered(200, 0)
        found.append(window.size)
    return found


def test_a_server_far_away_gets_more_requests_at_once() -> None:
    assert sizes(0.05, 0.06, 0.05, 0.05) == [64, 128, 128, 128]


def test_a_server_at_hand_does_not() -> None:
    assert sizes(0.005, 0.001) == [32, 32]


def test_a_busy_server_that_takes_longer_with_more_of_them_gets_no_more() -> None:
    assert sizes(0.05, 0.1, 0.05) == [64, 64, 64]


@pytest.mark.parametrize("status", [429, 503, None])
def test_a_server_that_refuses_some_of_them_gets_fewer(status: int | None) -> None:
    assert sizes(0.05, 0.05, status=status) == [32, 32]


def test_requests_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    with scripted([SIZED]) as server:
        assert body(WebClient(), server.url) == b"bytes"


def test_a_login_comes_from_netrc(netrc: Callable[[str], None]) -> None:
    netrc("127.0.0.1")
    with scripted([SIZED]) as server:
        assert body(WebClient(), server.url) == b"bytes"
        assert b"\r\nAuthorization: Basic bWU6c2VjcmV0\r\n" in server.requests[0]


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
def test_a_proxy_gets_the_whole_address(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    with scripted([SIZED], [SIZED]) as proxy:
        monkeypatch.setenv(variable, f"http://me:secret@127.0.0.1:{proxy.port}")
        client = WebClient()
        assert [body(client, "http://shards.example.org:8080") for _ in range(2)] == [b"bytes"] * 2
        assert proxy.requests[0].startswith(b"GET http://shards.example.org:8080/x HTTP/1.1\r\n")
        assert b"\r\nHost: shards.example.org:8080\r\n" in proxy.requests[0]
        assert b"\r\nproxy-authorization: basic bwu6c2vjcmv0\r\n" in proxy.requests[0].lower()
        assert proxy.connections == 1


def test_no_proxy_is_used_for_the_servers_in_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with scripted([SIZED]) as server:
        assert body(WebClient(), server.url) == b"bytes"


def test_a_token_is_sent_in_the_place_of_a_login_from_netrc(netrc: Callable[[str], None]) -> None:
    netrc("127.0.0.1")
    with scripted([SIZED]) as server:
        assert body(WebClient({"Authorization": "Bearer a"}), server.url) == b"bytes"
        assert re.findall(rb"\r\nAuthorization: (.*)\r\n", server.requests[0]) == [b"Bearer a"]


def test_of_many_responses_those_are_left_out_that_are_broken_off_or_too_large() -> None:
    half = OK + b"Content-Length: 50\r\n\r\nbytes"
    with scripted([half]) as broken, scripted([SIZED]) as whole:
        urls = [f"{broken.url}/a", f"{whole.url}/b"]
        assert [found and found.read() for found in WebClient().each("GET", urls, 5)] == [None, b"bytes"]
    with scripted([SIZED]) as large:
        assert [*WebClient().each("GET", [f"{large.url}/c"], 4)] == [None]


def test_a_login_in_a_url_is_not_sent_where_its_server_redirects_to() -> None:
    with scripted([SIZED]) as other, scripted(moved(other)) as server:
        assert body(WebClient(), server.url.replace("//", "//me:secret@")) == b"bytes"
        assert b"\r\nAuthorization: Basic bWU6c2VjcmV0\r\n" in server.requests[0]
        assert b"Authorization" not in other.requests[0]


def test_a_login_of_netrc_is_not_sent_where_its_server_redirects_to(netrc: Callable[[str], None]) -> None:
    netrc("localhost")
    with scripted([SIZED]) as other, scripted(moved(other)) as server:
        assert body(WebClient(), server.url.replace("127.0.0.1", "localhost")) == b"bytes"
        assert b"\r\nAuthorization: Basic bWU6c2VjcmV0\r\n" in server.requests[0]
        assert b"Authorization" not in other.requests[0]


def test_a_token_is_not_sent_where_its_server_redirects_to() -> None:
    with scripted([SIZED]) as other, scripted(moved(other)) as server:
        response = WebClient({"Authorization": "Bearer a"}).send("GET", server.url)
        assert (response.read(), response.server) == (b"bytes", other.url)
        assert b"\r\nAuthorization: Bearer a\r\n" in server.requests[0]
        assert b"Bearer" not in other.requests[0]


@pytest.mark.parametrize("location", ["http://:80", "ftp://127.0.0.1/y", "nowhere:y"])
def test_a_redirect_to_what_is_not_a_web_address_is_an_error_without_the_address(location: str) -> None:
    answer = [f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()]
    with scripted(answer) as server, pytest.raises(UsageError, match="not a valid URL") as caught:
        WebClient().send("GET", server.url)
    assert location not in str(caught.value)


def test_a_proxy_that_is_not_there_is_named_instead_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = pytest.raises(Transient, match=r"^proxy 127\.0\.0\.1: Connection refused$")
    with nobody_listens() as port, refused:
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        WebClient().send("GET", "http://shards.example.org/x")


def test_certificates_may_lie_in_a_folder(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    named = ["openssl", "x509", "-noout", "-subject_hash", "-in", str(certificate)]
    name = subprocess.run(named, capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / f"{name}.0").write_bytes(certificate.read_bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with faulty_server(tls) as web:
        web.objects["x"] = b"bytes"
        for place in (certificate, tmp_path / "folder"):
            assert body(WebClient(verify=str(place)), web.url) == b"bytes"


def test_a_certificate_is_rejected_at_once_at_the_second_address_of_a_server_too(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*self_signed(tmp_path))
    with faulty_server(tls) as web, pytest.raises(SourceError, match=r"TLS failed: .*certificate"):
        WebClient().send("GET", web.url.replace("127.0.0.1", "localhost"))  # whose first address is ::1


def test_https_goes_through_a_tunnel_of_the_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with faulty_server(tls) as web, _tunnel(int(web.url.rpartition(":")[2])) as (port, asked):
        web.objects["x"] = bytes(500_000)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        client = WebClient(verify=str(certificate))
        assert [body(client, web.url) for _ in range(2)] == [bytes(500_000)] * 2
        del client  # which closes its connections
        assert len(asked) == 1
        assert asked[0].startswith(f"CONNECT {web.url.partition('//')[2]} HTTP/1.".encode())


@contextmanager
def _tunnel(port: int) -> Iterator[tuple[int, list[bytes]]]:
    """A proxy that connects every client to a port."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            asked.append(head)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            back.join()

    def pump(given: socket.socket, taken: socket.socket) -> None:
        try:
            while data := given.recv(1 << 16):
                taken.sendall(data)
            taken.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    with listener:
        yield listener.getsockname()[1], asked
    thread.join()
