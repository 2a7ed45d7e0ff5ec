"""What all models of a server share: settings, and the responses that clients can fetch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .connections import Bounds
from .openai.background import BackgroundAnswers
from .openai.stored import StoredResponses

if TYPE_CHECKING:
    from .request_log import RequestLog


@dataclass(frozen=True)
class ServerSettings:
    """Who may use the server, its limits, the routes that it shows, and stored responses.

    keys      every request except /health must send one of them; empty: no keys
    shared    all keys share the kept texts; otherwise a text belongs to the key that sent it
    cors      origins whose web pages may use the server
    hosts     allowed names in Host headers if there are no keys; None: any
    timeout   seconds for an answer, counted from its request; None: no limit
    bounds    of connections
    slots     whether GET /slots shows requests in progress
    page      whether GET / is a web page
    log       called with every finished request

    stored      responses that clients can fetch and continue
    background  responses that are answered without a connection
    """

    keys: tuple[str, ...] = ()
    shared: bool = False
    cors: tuple[str, ...] = ()
    hosts: frozenset[str] | None = None
    timeout: float | None = None
    bounds: Bounds = field(default_factory=Bounds)
    slots: bool = True
    page: bool = True
    log: "Callable[[RequestLog], None] | None" = None
    stored: StoredResponses = field(default_factory=StoredResponses)
    background: BackgroundAnswers = field(default_factory=BackgroundAnswers)
