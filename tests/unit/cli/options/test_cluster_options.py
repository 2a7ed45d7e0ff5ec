"""--cluster: accepted values, and the errors for others."""

import sys
from pathlib import Path

import pytest

from hybrid.cli.options import cluster_options
from hybrid.cli.options.cluster_options import ClusterAddress, cluster_address
from hybrid.quant.ggml.errors import UsageError


def test_its_three_forms(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text("{}")
    assert cluster_address(None) is None
    assert cluster_address("local:3") == ClusterAddress("local", "local:3", n_workers=3)
    for text in ("tcp://10.0.0.1:8786", "tls://node-1.cluster:1", "tcp://[fe80::1%eth0]:65535"):
        assert cluster_address(text) == ClusterAddress("address", text, value=text)
    assert cluster_address(str(file)) == ClusterAddress("file", str(file), value=str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("local:0", "a number of processes from 1 to 512 behind local:, as in local:4"),
        ("local:", "a number of processes from 1"),
        ("local:-1", "a number of processes from 1"),
        ("local:²", "a number of processes from 1"),
        ("local:513", "a number of processes from 1"),
        ("tcp://host", "expected tcp://HOST:PORT"),
        ("tcp://host:0", "expected tcp://HOST:PORT"),
        ("tls://host:65536", "expected tls://HOST:PORT"),
        ("tls://host:80/path", "expected tls://HOST:PORT"),
        ("tcp://user@host:80", "expected tcp://HOST:PORT"),
        ("http://host:80", "there is no such file. Expected tcp://HOST:PORT or tls://HOST:PORT of a scheduler"),
        ("nothing\n.json", r"nothing\\n.json: there is no such file"),
        ("", "there is no such file"),
    ],
)
def test_what_it_does_not_take(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        cluster_address(text)
    assert said.replace("\\\\", "\\") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_options, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs Dask: pip install 'hybrid-lm\[cluster\]'"):
        cluster_address("local:2")


def test_nothing_of_dask_is_imported() -> None:
    import subprocess

    code = "import sys, hybrid.cli.commands.run; print(*[m for m in sys.modules if m in ('dask', 'distributed')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
