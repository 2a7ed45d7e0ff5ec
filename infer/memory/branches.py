"""The prompt cache as a user sees it: texts, as branches of a tree."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import UsageError

from .cache import PromptCache
from .pins import text_bytes
from .prefix_tree import Node, Tokens

FIRST = 32  # tokens of a branch that are listed


@dataclass(frozen=True, eq=False)
class Branch:
    """Tokens start .. start + n_tokens of one text or several, up to where they diverge or the text ends.

    name, parent  ids of this branch and of the one before it; parent 0: a text begins here
    age           seconds since the last use
    nbytes        of keys, values, states and logits; a page that two branches share counts in both
    pinned        the cache does not give it up to make room
    beginning     its first FIRST tokens
    """

    name: int
    parent: int
    start: int
    n_tokens: int
    age: float
    nbytes: int
    n_checkpoints: int
    pinned: bool
    beginning: Tokens


@dataclass(frozen=True)
class Branches:
    """The `listed` branches, most recently used first, out of `total`. n_tokens and n_checkpoints are of all."""

    listed: list[Branch]
    total: int
    n_tokens: int
    n_checkpoints: int


def branches(cache: PromptCache, most: int | None = None, owner: bytes = b"") -> Branches:
    """The branches of this owner, at most `most`. Call only between steps of the model (see `Service.call`)."""
    ends, n_tokens, n_checkpoints = [], 0, 0
    for node in cache.tree.nodes_of(owner):
        n_tokens += len(node.tokens)
        n_checkpoints += len(node.checkpoints)
        if len(node.children) != 1:
            ends.append(node)
    ends.sort(key=lambda node: (node.used, node.end), reverse=True)
    now = time.monotonic()
    return Branches([_branch(cache, end, now) for end in ends[:most]], len(ends), n_tokens, n_checkpoints)


def find_branch(cache: PromptCache, name: int, owner: bytes = b"") -> tuple[Branch, Node] | None:
    """The owner's branch of this name and its first node, or None."""
    end = next((node for node in cache.tree.nodes_of(owner) if node.name == name and len(node.children) != 1), None)
    return None if end is None else (_branch(cache, end, time.monotonic()), _edges(end)[0])


@dataclass(frozen=True)
class Kept:
    """The name of the branch in which the known prefix of a text ends, and whether that prefix is pinned."""

    name: int
    pinned: bool


def kept(cache: PromptCache, ids: Sequence[int], n_prompt: int, pin: bool | None, owner: bytes = b"") -> Kept | None:
    """Pin (True) or unpin (False) a text that has been read. Returns None if the cache does not know it.

    n_prompt: see `Pins.add`. A text too large to be pinned is left alone: it may have grown since `Pins.check`.
    """
    tokens = np.asarray(ids, np.int32)
    node, n = cache.tree.match(tokens, owner)
    if not n:
        return None
    if pin is False:
        cache.pins.drop(node)
    elif pin:
        with suppress(UsageError):
            cache.pins.add(tokens, n_prompt, cache.budget, owner)
    pinned = node.pinned > 0
    while len(node.children) == 1:
        (node,) = node.children.values()
    return Kept(node.name, pinned)


def _edges(end: Node) -> list[Node]:
    """The nodes of the branch that ends in `end`, first to last."""
    edges = [end]
    while (above := edges[-1].parent) is not None and above.parent is not None and len(above.children) == 1:
        edges.append(above)
    return edges[::-1]


def _branch(cache: PromptCache, end: Node, now: float) -> Branch:
    edges = _edges(end)
    parent = edges[0].parent
    assert parent is not None
    return Branch(
        name=end.name,
        parent=parent.name,
        start=edges[0].start,
        n_tokens=end.end - edges[0].start,
        age=now - end.seconds,
        nbytes=sum(text_bytes(node, cache.memory) for node in edges),
        n_checkpoints=sum(len(node.checkpoints) for node in edges),
        pinned=any(node.pinned > 0 for node in edges),
        beginning=cache.tree.following(edges[0], edges[0].start, FIRST),
    )
