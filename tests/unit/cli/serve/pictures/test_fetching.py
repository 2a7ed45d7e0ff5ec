"""Fetching pictures: a resolver of the test's own, and a server on this machine in place of the network."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from picture_site import PUBLIC, Answer, Network, Site, moved, page, site_of, sized

from hybrid.cli.serve.pictures.fetching import Address, Fetcher, host_name, resolve
from hybrid.infer.text.stops import GoneError, stopped_by
from hybrid.quant.ggml.errors import PictureError

FILE = bytes(range(256)) * 300


@pytest.fixture
def site() -> Iterator[Site]:
    with site_of() as made:
        yield made


def refused(fetcher: Fetcher, url: str, most: int = 1 << 20) -> str:
    with pytest.raises(PictureError) as told:
        fetcher.fetch(url, most)
    said = str(told.value)
    assert "\n" not in said and said.isprintable() and len(said) < 240
    return said


# --- what is fetched ---
def test_a_file(site: Site) -> None:
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (FILE[:7], FILE[7:5000], FILE[5000:])) + b"0\r\n\r\n"
    site.pages = {
        "/a%20b.png?x=%C3%A4&y=2": sized(FILE),
        "/": page(FILE),
        "/c": page(chunked, "200 OK", "Transfer-Encoding: chunked"),
    }
    network = Network(site)
    fetcher = network.fetcher()
    for url in (
        "http://pictures.example/a%20b.png?x=ä&y=2#part",
        "HTTP://Pictures.Example:80",
        "http://pictures.example/c",
    ):
        assert fetcher.fetch(url) == FILE
    assert network.asked == ["pictures.example"] * 3 and network.reached == [(PUBLIC, 80)] * 3
    for head in site.heads:
        assert "\r\nHost: pictures.example\r\n" in head
        assert not any(name in head.lower() for name in ("cookie", "authorization", "referer"))


def test_names_beyond_ascii(site: Site) -> None:
    site.pages = {"/": sized(FILE)}
    network = Network(site, {"xn--bcher-kva.example": [PUBLIC]})
    assert network.fetcher().fetch("http://Bücher.example/") == FILE
    assert "\r\nHost: xn--bcher-kva.example\r\n" in site.heads[0]


def test_another_address_if_the_first_does_not_answer(site: Site) -> None:
    site.pages = {"/": sized(FILE)}
    network = Network(site, {"pictures.example": ["2606:4700::1", PUBLIC]})
    connect = network.connect

    def flaky(family: socket.AddressFamily, address: Any, seconds: float) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError("no route")
        return connect(family, address, seconds)

    assert Fetcher(resolve=network.resolve, connect=flaky).fetch("http://pictures.example/") == FILE


# --- addresses ---
PRIVATE = (
    "127.0.0.1",
    "10.0.0.5",
    "172.16.3.4",
    "192.168.0.1",
    "169.254.169.254",
    "0.0.0.0",
    "100.64.1.1",
    "224.0.0.1",
    "240.0.0.1",
    "::1",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "64:ff9b::a00:5",
    "2002:a00:5::",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_no_private_address(site: Site, address: str) -> None:
    for addresses in ([address], [PUBLIC, address], [address, PUBLIC]):
        network = Network(site, {"evil.example": addresses})
        assert "no public address" in refused(network.fetcher(), "http://evil.example/")
        allowed = network.fetcher(hosts=frozenset({"evil.example"}))
        assert "no public address" in refused(allowed, "http://evil.example:8080/")
        assert network.reached == [] and site.heads == []
    host = f"[{address}]" if ":" in address else address
    network = Network(site)
    assert "no public address" in refused(network.fetcher(), f"http://{host}/")
    assert network.reached == []


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "127.0.0.1."])
def test_other_spellings_of_this_machine(host: str) -> None:
    """The system's resolver knows them without a network."""
    network = Network(None)
    fetcher = Fetcher(resolve=resolve, connect=network.connect)
    said = refused(fetcher, f"http://{host}/")
    assert network.reached == [] and ("no public address" in said or "cannot be fetched" in said)


def test_the_name_is_looked_up_once(site: Site) -> None:
    """DNS rebinding: a second answer would be this machine."""
    site.pages = {"/": sized(FILE)}
    network = Network(site)
    answers = iter([[(socket.AF_INET, (PUBLIC, 80))], [(socket.AF_INET, ("127.0.0.1", 80))]])
    fetcher = Fetcher(resolve=lambda host, port: next(answers), connect=network.connect)
    assert fetcher.fetch("http://rebinding.example/") == FILE
    assert network.reached == [(PUBLIC, 80)]
    assert "no public address" in refused(fetcher, "http://rebinding.example/")


def test_names_without_addresses() -> None:
    def fails(host: str, port: int) -> list[Address]:
        raise socket.gaierror(-2, "Name or service not known")

    assert "cannot be fetched (gaierror)" in refused(Fetcher(resolve=fails), "http://nowhere.example/")
    assert "no public address" in refused(Fetcher(resolve=lambda host, port: []), "http://nowhere.example/")


# --- URLs ---
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///etc/passwd", "begins with file:"),
        ("ftp://pictures.example/", "begins with ftp:"),
        ("gopher://pictures.example/", "begins with gopher:"),
        ("//pictures.example/", "begins with :"),
        ("/etc/passwd", "begins with :"),
        ("http://me:secret@pictures.example/", "without credentials"),
        ("http://me@pictures.example/", "without credentials"),
        ("http://", "names no host"),
        ("http:///a", "names no host"),
        ("http://pictures.example:22/", "port 22"),
        ("http://pictures.example:0/", "port 0"),
        ("http://pictures.example:99999/", "damaged"),
        ("http://pictures.example:x/", "damaged"),
        ("http://[::1/", "damaged"),
        ("http://a..b/", "damaged"),
        (f"http://{'a' * 64}.example/", "damaged"),
        ("http://pictures.example/ x", "spaces"),
        ("http://pictures.example/\r\nHost: other", "spaces"),
        ("http://pictures.example\\@127.0.0.1/", "spaces"),
        ("http://pictures.example/" + "a" * 9000, "too long"),
    ],
)
def test_urls_that_are_not_fetched(url: str, says: str) -> None:
    network = Network(None)
    said = refused(network.fetcher(), url)
    assert says in said and "secret" not in said and network.reached == []


def test_allowed_hosts(site: Site) -> None:
    site.pages = {"/": sized(FILE)}
    network = Network(site, {"other.example": [PUBLIC]})
    fetcher = network.fetcher(any_host=False, hosts=frozenset({"pictures.example"}))
    assert fetcher.fetch("http://pictures.example:8080/") == FILE
    assert "\r\nHost: pictures.example:8080\r\n" in site.heads[0]
    assert "no pictures are fetched" in refused(fetcher, "http://other.example/")
    assert network.reached == [(PUBLIC, 8080)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Pictures.Example.", "pictures.example"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2606:4700::1]", "2606:4700::1"),
        ("", ""),
        ("pictures.example:80", ""),
        ("http://pictures.example", ""),
        ("pictures.example/a", ""),
        ("me@pictures.example", ""),
        ("a..b", ""),
        ("[", ""),
    ],
)
def test_host_names(text: str, name: str) -> None:
    assert host_name(text) == name


# --- redirects ---
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects(site: Site, status: int) -> None:
    site.pages = {
        "/1": moved("/2", status),
        "/2": moved("//pictures.example/3", status),
        "/3": moved("4?x", status),
        "/4?x": sized(FILE),
    }
    network = Network(site)
    assert network.fetcher().fetch("http://pictures.example/1") == FILE
    assert network.asked == ["pictures.example"] * 4, "each is checked again"


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("http://inside.example/", "no public address"),
        ("http://127.0.0.1/", "no public address"),
        ("http://169.254.169.254/latest/meta-data/", "no public address"),
        ("file:///etc/passwd", "begins with file:"),
        ("http://a:b@pictures.example/", "credentials"),
        ("http://pictures.example:6379/", "port 6379"),
        ("http://[::1", "cannot be fetched"),
        ("/again", "more than 3 times"),
    ],
)
def test_redirects_are_checked(site: Site, to: str, says: str) -> None:
    site.pages = {"/": moved(to), "/again": moved("/again")}
    network = Network(site, {"inside.example": ["10.0.0.7"]})
    assert says in refused(network.fetcher(), "http://pictures.example/")
    assert set(network.reached) == {(PUBLIC, 80)} and len(site.heads) == (4 if to == "/again" else 1)


# --- answers ---
def endless(connection: socket.socket) -> None:
    connection.sendall(page(b""))
    with suppress(OSError):
        while True:
            connection.sendall(bytes(1 << 16))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (page(b"no", "404 Not Found"), "status 404"),
        (page(b"", "204 No Content"), "status 204"),
        (page(b"", "302 Found"), "status 302"),
        (page(b""), "no bytes"),
        (sized(b""), "no bytes"),
        (sized(FILE, len(FILE) + 1), "76800 of 76801 bytes"),
        (page(b"x", "200 OK", "Content-Length: 100001"), "more than 100000"),
        (page(bytes(100_001)), "more than 100000"),
        (endless, "more than 100000"),
        (b"", "cannot be fetched"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "cannot be fetched"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200, "cannot be fetched"),
        (b"HTTP/1.1 200 OK\r\nA: " + bytes(70000), "cannot be fetched"),
        (b"HTTP/9.9 999 x\r\n\r\n", "cannot be fetched"),
        (page(b"zz\r\n", "200 OK", "Transfer-Encoding: chunked"), "cannot be fetched"),
    ],
)
def test_answers_that_are_no_file(site: Site, answer: Answer, says: str) -> None:
    site.pages = {"/": answer}
    assert says in refused(Network(site).fetcher(), "http://pictures.example/", 100_000)


def drip(head: bytes) -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.sendall(head)
        with suppress(OSError):
            for _ in range(200):
                connection.sendall(b"a")
                time.sleep(0.02)

    return send


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nA: ", page(b"")], ids=["status", "header", "body"])
def test_slow_servers(site: Site, head: bytes) -> None:
    """Each byte comes in time, and the whole file never."""
    site.pages = {"/": drip(head)}
    begin = time.monotonic()
    assert "within 0.3 s" in refused(Network(site).fetcher(seconds=0.3), "http://pictures.example/")
    assert time.monotonic() - begin < 2.5


def test_slow_names() -> None:
    go = threading.Event()

    def slow(host: str, port: int) -> list[Address]:
        go.wait(20)
        return []

    try:
        assert "within 0.2 s" in refused(Fetcher(resolve=slow, seconds=0.2), "http://pictures.example/")
    finally:
        go.set()


def test_nobody_waits_any_more(site: Site) -> None:
    site.pages = {"/": drip(page(b""))}
    end = time.monotonic() + 0.2
    with stopped_by(lambda: time.monotonic() > end), pytest.raises(GoneError):
        Network(site).fetcher(seconds=30).fetch("http://pictures.example/")
    assert time.monotonic() < end + 2


# --- TLS ---
def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server called `name`, and of a client that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + text)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=text.decode())


def test_tls(tmp_path: Path) -> None:
    theirs, ours = certificate(tmp_path, "pictures.example")
    with site_of(theirs) as site:
        site.pages = {"/": sized(FILE)}
        network = Network(site, {"other.example": [PUBLIC]})
        assert network.fetcher(context=ours).fetch("https://pictures.example/") == FILE
        assert network.reached == [(PUBLIC, 443)] and "\r\nHost: pictures.example\r\n" in site.heads[0]
        for fetcher, host in ((network.fetcher(context=ours), "other"), (network.fetcher(), "pictures")):
            said = refused(fetcher, f"https://{host}.example/")
            assert "cannot be fetched (SSLCertVerificationError)" in said, (
                "a name that the certificate lacks, or no trust"
            )
        assert len(site.heads) == 1
