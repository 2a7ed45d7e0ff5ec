"""--cluster: the workers that do the work, the same option in every command that divides its work.

    def command(..., cluster: Cluster = None) -> None:
        address = cluster_address(cluster)          # None, or a ClusterAddress; UsageError
        with connected(address) as connection: ...  # cli/cluster/connection.py, imported only then

Does not import Dask: a wrong value is reported without it.
"""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from hybrid.quant.ggml.cpus import MAX_THREADS
from hybrid.quant.ggml.errors import UsageError, shown

EXPECTED = (
    "Expected tcp://HOST:PORT or tls://HOST:PORT of a scheduler, its scheduler file, or local:N for N processes here"
)
MAX_LOCAL = MAX_THREADS  # a larger number is a typing error

Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|FILE|local:N",
        help="Divide the work over the workers of a Dask cluster, given by its address or its scheduler file; "
        "local:N starts N processes on this machine.",
    ),
]


@dataclass(frozen=True)
class ClusterAddress:
    """Where the workers are.

    kind   'local': start `n_workers` processes here; 'address': a scheduler's address; 'file': a scheduler file
    text   the option's value, for messages
    value  the address, or the path of the file
    """

    kind: Literal["local", "address", "file"]
    text: str
    value: str = ""
    n_workers: int = 0


def cluster_address(text: str | None) -> ClusterAddress | None:
    """The parsed value of --cluster, or None without it. UsageError: a malformed value, or Dask is not installed."""
    if text is None:
        return None
    address = _parsed(text)
    if find_spec("distributed") is None:
        raise UsageError("--cluster needs Dask: pip install 'hybrid-lm[cluster]'")
    return address


def _parsed(text: str) -> ClusterAddress:
    kind, colon, rest = text.partition(":")
    if kind == "local" and colon:
        n = int(rest) if re.fullmatch(r"[0-9]{1,9}", rest) else 0
        if not 1 <= n <= MAX_LOCAL:
            raise UsageError(
                f"--cluster {shown(text)}: expected a number of processes from 1 to {MAX_LOCAL} behind local:, as in "
                "local:4."
            )
        return ClusterAddress("local", text, n_workers=n)
    if kind in ("tcp", "tls") and rest.startswith("//"):
        port = rest.rpartition(":")[2]
        if not re.fullmatch(r"//(\[[0-9a-zA-Z:.%_-]+\]|[^/:@\s]+):[0-9]{1,5}", rest) or not 0 < int(port) < 1 << 16:
            raise UsageError(f"--cluster {shown(text)}: expected {kind}://HOST:PORT, as the scheduler prints it.")
        return ClusterAddress("address", text, value=text)
    if not Path(text).is_file():
        raise UsageError(f"--cluster {shown(text)}: there is no such file. {EXPECTED}.")
    return ClusterAddress("file", text, value=text)
