"""Addresses that pictures are fetched from."""

import pytest

from hybrid.cli.serve.pictures.addresses import is_public


@pytest.mark.parametrize(
    "text", ["93.184.216.34", "1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::6810:85e5", "::ffff:93.184.216.34"]
)
def test_public(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.255.3.4",
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "192.0.0.9",
        "192.88.99.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::5db8:d822",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "2001:db8::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "2606:4700::1%1",
        "100::1",
        "",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "/tmp/socket",
    ],
)
def test_others(text: str) -> None:
    assert not is_public(text)
