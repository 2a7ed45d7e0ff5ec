"""The part of a state file that holds the prompt cache: texts, their keys and values, and checkpoints.

A list in the file's header has one entry per edge of the tree, parents first; array names contain its index i:

    {"parent": index or -1, "n": tokens, "kv": are keys and values here?, "points": [[position, boundary, logits?]]}
    cache.i.tokens                 i32 [n]
    cache.i.blk.L.k ...            keys and values of these positions, as `AttentionMemory.export` yields them
    cache.i.P.blk.L.ssm ...        state after position P, as `RecurrentMemory.export` yields it
    cache.i.P.logits               f32 [n_vocab]

An edge that is a prefix of the file's own sequence has no keys and values here: the sequence has them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError

from ..kernels.attention.kv import PAGE, pages_of
from .cache import PromptCache
from .picture_tokens import are_known
from .prefix_tree import Checkpoint, Node
from .state_file import StateFile

Named = tuple[str, np.ndarray]


def describe_cache(
    cache: PromptCache, ids: Sequence[int], limit: int, owner: bytes = b""
) -> tuple[list[dict[str, Any]], list[Named]]:
    """The header's list and the arrays, at most about `limit` bytes: the texts of one owner with the highest worth.

    ids: tokens of the file's own sequence.
    """
    own = set(map(id, _whole_path(cache, ids, owner)))
    chosen = _chosen(cache, limit, own, owner)
    places: dict[int, int] = {}
    entries: list[dict[str, Any]] = []
    arrays: list[Named] = []
    for node in cache.tree.nodes_of(owner):
        if id(node) not in chosen:
            continue
        i = places[id(node)] = len(entries)
        points = [node.checkpoints[p] for p in sorted(node.checkpoints) if p in chosen[id(node)]]
        kv = id(node) not in own
        entries.append(
            {
                "parent": places.get(id(node.parent), -1),  # -1: the parent is the root
                "n": len(node.tokens),
                "kv": kv,
                "points": [[c.position, c.boundary, c.logits is not None] for c in points],
            }
        )
        arrays.append((f"cache.{i}.tokens", node.tokens))
        arrays += [(f"cache.{i}.{name}", a) for name, a in _node_arrays(cache, node, kv)]
        for c in points:
            arrays += [(f"cache.{i}.{c.position}.{name}", a) for name, a in _point_arrays(cache, c)]
    return entries, arrays


def _whole_path(cache: PromptCache, ids: Sequence[int], owner: bytes) -> list[Node]:
    """The edges that lie wholly within the known prefix of `ids`."""
    node, n = cache.tree.match(np.asarray(ids, np.int32), owner)
    return [part for part in node.path() if part.end <= n]


def _node_arrays(cache: PromptCache, node: Node, kv: bool) -> Iterator[Named]:
    if kv:
        yield from cache.memory.attention.export(node.pages, node.end, node.start)


def _point_arrays(cache: PromptCache, point: Checkpoint) -> Iterator[Named]:
    if cache.memory.is_recurrent:
        row = cache.row_of(point)
        yield from cache.memory.recurrent.export(row)
        cache.memory.recurrent.pool.drop(row)
    if point.logits is not None:
        yield "logits", point.logits


def _chosen(cache: PromptCache, limit: int, own: set[int], owner: bytes) -> dict[int, set[int]]:
    """id(edge) -> positions of its checkpoints: the best by worth that fit, with all edges above them."""
    memory = cache.memory
    nodes = cache.tree.nodes_of(owner)
    points = [(cache.worth(node, c), c.position, node, c) for node in nodes for c in node.checkpoints.values()]
    chosen: dict[int, set[int]] = {}
    size = 0
    for _, position, node, point in sorted(points, key=lambda item: item[:2], reverse=True):
        more = memory.bytes_state_per_seq + (point.logits.nbytes if point.logits is not None else 0)
        new = [part for part in node.path() if id(part) not in chosen]
        more += sum(len(part.tokens) * memory.bytes_kv_per_token for part in new if id(part) not in own)
        if size + more > limit:
            continue
        size += more
        for part in new:
            chosen[id(part)] = set()
        chosen[id(node)].add(position)
    return chosen


def load_cache(cache: PromptCache, state: StateFile, n_vocab: int, owner: bytes = b"") -> None:
    """Add the texts of a state file to the cache, for this owner, as far as the budget allows.

    The file's own sequence is in the cache already. Raises StateError when something is missing or does not fit the
    model; earlier texts then stay in the cache.
    """
    if state.header.keys_values != cache.memory.attention.described():
        return  # of an older version of hybrid: its own text was brought into this basis, others are computed again
    texts: list[np.ndarray] = []
    size = cache.nbytes
    full = False
    for i, item in enumerate(state.header.cache):
        try:
            parent, n, kv, points = item["parent"], item["n"], item["kv"], item["points"]
            fits = type(parent) is int and -1 <= parent < i and type(n) is int and n > 0 and type(kv) is bool
            points = [(int(p), bool(boundary), bool(logits)) for p, boundary, logits in points]
        except (KeyError, TypeError, ValueError):
            fits = False
        start = len(texts[parent]) if fits and parent >= 0 else 0
        if not fits or not all(start < p <= start + n for p, _, _ in points) or start + n > cache.memory.n_ctx:
            if fits and start + n > cache.memory.n_ctx:
                return
            raise StateError(f"{state.path.name} is damaged: entry {i} of its cache.", remedy=Remedy.WITHOUT_STATE)
        tokens = state.expect(f"cache.{i}.tokens", np.int32, (n,))
        if not are_known(tokens, n_vocab):
            raise StateError(
                f"{state.path.name} holds tokens that are not of this vocabulary.", remedy=Remedy.WITHOUT_STATE
            )
        texts.append(np.concatenate([texts[parent], tokens]) if parent >= 0 else tokens.copy())
        size += n * cache.memory.bytes_kv_per_token * kv + len(points) * cache.memory.bytes_state_per_seq
        full = full or size > cache.budget
        if not full:
            _load_entry(cache, state, i, texts[-1], start, kv, points, n_vocab, owner)
    cache.trim()


def _load_entry(
    cache: PromptCache,
    state: StateFile,
    i: int,
    ids: np.ndarray,
    start: int,
    kv: bool,
    points: list[tuple[int, bool, bool]],
    n_vocab: int,
    owner: bytes,
) -> None:
    attention, recurrent = cache.memory.attention, cache.memory.recurrent
    node, known = cache.tree.match(ids, owner)
    if known < start or (known < len(ids) and not kv):
        return  # its prefix was given up
    if known < len(ids):
        layout = attention.layout(len(ids), start)
        arrays = {name: state.expect(f"cache.{i}.{name}", dtype, shape) for name, (dtype, shape) in layout.items()}
        # kept alive: making room for the new pages may give up the text they belong to
        before = [attention.pool.share(page) for page in cache.tree.pages(node, start)] if start else []
        pages = attention.pool.take_many(pages_of(len(ids)) - start // PAGE) if attention.specs else []
        if pages and start % PAGE:
            attention.copy_page(before[-1], pages[0])
        attention.load(pages, len(ids), arrays, start)
        node = cache.tree.insert(ids, [*before[: start // PAGE], *pages], owner)
        for page in (*before, *pages):
            attention.pool.drop(page)
    for position, boundary, with_logits in points:
        node, _ = cache.tree.match(ids[:position], owner)
        if position in node.checkpoints:
            continue
        row = -1
        where = f"cache.{i}.{position}."
        states = {name: state.expect(where + name, np.float32, shape) for name, shape in recurrent.shapes().items()}
        logits = state.expect(where + "logits", np.float32, (n_vocab,)).copy() if with_logits else None
        if recurrent.specs:
            row = recurrent.pool.take()
            recurrent.load(row, states)
        cache.place(node, Checkpoint(position, row, boundary, logits))  # not parked: f32 as in the file
