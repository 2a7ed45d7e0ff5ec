"""Options of `hybrid serve`: address, clients, capacity, state folder, pages and time limits."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from . import text_options

if TYPE_CHECKING:
    from ..serve.pictures.fetching import Fetcher

GRACE = 5.0


@dataclass(frozen=True, eq=False, repr=False)
class Address:
    """The address to listen on."""

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8080
    unix: Annotated[Path | None, typer.Option(help="Listen on this Unix socket instead of an address.")] = None


@dataclass(frozen=True, eq=False, repr=False)
class Capacity:
    """Limits on concurrent requests."""

    parallel: Annotated[int, typer.Option(min=1, max=256, help="Answers computed at a time.")] = 8
    queue: Annotated[
        int, typer.Option(min=0, help="Maximum waiting requests; further requests are refused with status 429.")
    ] = 64

    @property
    def most(self) -> int:
        """Maximum requests in progress or waiting."""
        return self.parallel + self.queue


@dataclass(frozen=True, eq=False, repr=False)
class Clients:
    """API keys, and whether they share the prompt cache."""

    api_key_file: Annotated[
        Path | None, typer.Option(help="File of API keys, one per line; requests must send one of them.")
    ] = None
    share_between_keys: Annotated[
        bool,
        typer.Option(
            "--share-between-keys",
            help="Share the prompt cache between API keys. Default: each key continues only from texts that it "
            "sent itself.",
        ),
    ] = False
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Allow web pages of this origin to use the server. May be repeated."),
    ] = None

    def keys(self) -> tuple[str, ...]:
        """The keys of --api-key-file: see `read_keys`."""
        return read_keys(self.api_key_file)


def read_keys(path: Path | None) -> tuple[str, ...]:
    """The keys in a file, one per line. UsageError: the file cannot be read, or holds no key."""
    if path is None:
        return ()
    text = text_options.read_text(path)
    if path != text_options.STDIN and path.stat().st_mode & 0o004:
        console.note(f"warning: everybody on this machine can read the keys of {shown(path)} (chmod 600 hides them)")
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not keys:
        raise UsageError(f"{shown(path)} holds no key. Write one per line.")
    return keys


@dataclass(frozen=True, eq=False, repr=False)
class Keeping:
    """The folder of the kept prompt cache, and its maximum size."""

    state_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that keeps the prompt cache over restarts.")
    ] = None
    state_budget: Annotated[
        str, typer.Option(metavar="SIZE", help=f"Maximum size of the folder of --state-dir. {UNITS}.")
    ] = "8G"

    def nbytes(self) -> int:
        """--state-budget in bytes. UsageError: the value is not a size."""
        return parse_size(self.state_budget, "--state-budget")


@dataclass(frozen=True, eq=False, repr=False)
class ManyModels:
    """More models than one, and how many of them stay in memory."""

    models_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Serve all models of this folder. Later files are also found."),
    ] = None
    all_here: Annotated[bool, typer.Option("--all", help="Serve all models that `hybrid models` lists.")] = False
    models_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Settings of single models, and more models: a table [NAME] for each."),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for all models together: one that is not used makes room for another. Default, with "
            f"several models: four fifths of this machine's. {UNITS}.",
        ),
    ] = None
    models_max: Annotated[
        int | None,
        typer.Option(min=1, help="Models that are loaded at a time. Default: as many as --memory holds."),
    ] = None
    models_autoload: Annotated[
        bool,
        typer.Option(
            "--models-autoload/--no-models-autoload",
            help="Load a model when a request names it; otherwise only POST /models/load does.",
        ),
    ] = True
    idle: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Unload a model after this time without a request, such as 90s, 10m or 2h; the next request loads "
            "it again. Default: never.",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether models are named beside the arguments."""
        return self.models_dir is not None or self.all_here or self.models_file is not None


@dataclass(frozen=True, eq=False, repr=False)
class Visible:
    """Routes that can be turned off."""

    show_slots: Annotated[
        bool, typer.Option("--slots/--no-slots", help="Answer GET /slots with the requests that are in progress.")
    ] = True
    show_page: Annotated[bool, typer.Option("--page/--no-page", help="Serve a web page for chatting at GET /.")] = True


@dataclass(frozen=True, eq=False, repr=False)
class PictureURLs:
    """Whether pictures are fetched from URLs, and from where."""

    allow_image_urls: Annotated[
        bool,
        typer.Option(
            "--allow-image-urls",
            help="Fetch pictures that requests name by URL, from public addresses at the ports 80 and 443.",
        ),
    ] = False
    image_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--image-host",
            metavar="HOST",
            help="Fetch pictures from this host, at any port. Its addresses must be public. May be repeated.",
        ),
    ] = None

    def fetcher(self) -> "Fetcher | None":
        """What fetches them; None: nothing is fetched. UsageError: a host is no name of a host."""
        if not self.allow_image_urls and not self.image_hosts:
            return None
        from ..serve.pictures.fetching import Fetcher, host_name

        hosts = {host_name(given): given for given in self.image_hosts or ()}
        if "" in hosts:
            raise UsageError(f"--image-host {shown(hosts[''])}: expected the name of a host, without a port.")
        return Fetcher(self.allow_image_urls, frozenset(hosts))


@dataclass(frozen=True, eq=False, repr=False)
class Times:
    """Time limits."""

    timeout: Annotated[
        float, typer.Option(min=0, help="Maximum seconds for an answer, including its time in the queue; 0: no limit.")
    ] = 0
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that running answers have to finish after Ctrl-C or SIGTERM.")
    ] = GRACE
