"""Options of `hybrid serve` about pictures from URLs."""

import pytest

from hybrid.cli.options.server_options import PictureURLs
from hybrid.quant.ggml.errors import UsageError


def test_what_is_fetched() -> None:
    assert PictureURLs().fetcher() is None
    every = PictureURLs(True).fetcher()
    assert every is not None and every.any_host and every.hosts == frozenset()
    some = PictureURLs(False, ["Pictures.Example", "bücher.example"]).fetcher()
    assert some is not None and not some.any_host and some.hosts == {"pictures.example", "xn--bcher-kva.example"}


@pytest.mark.parametrize("host", ["", "pictures.example:8080", "https://pictures.example", "a b", "*"])
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(UsageError, match=r"^--image-host .*: expected the name of a host, without a port\.$"):
        PictureURLs(False, [host]).fetcher()
