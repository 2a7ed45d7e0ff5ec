"""A prompt cache that is also on disk: written in the background, read when a text needs it.

Three sides, so that the owner of the memory never waits for a disk, except for a few headers at the start:

    the owner    `next_piece`, `begin` and `end` only count owners of pages and rows: a page with a further owner is
                 copied before anybody writes it (see hybrid.py), so another thread can read it in place
    the writer   `write` writes the pieces of `next_piece` to the disk
    the reader   `fetch` fills pages that `begin` took and nobody else knows

A text is written up to a checkpoint, highest worth first: missing pieces of its keys and values, then the states. A
file counts only once it has its final name, so a process may end at any moment. Within the budget in bytes, something
new replaces files of lower worth.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np

from hybrid.quant.ggml.errors import StateError, UsageError

from ..kernels.attention.kv import PAGE, pages_of
from .attention import ArrayLayout
from .cache import PromptCache
from .prefix_tree import Checkpoint, Node, Tokens
from .store_file import (
    PIECE,
    STATE,
    FileHeader,
    TextDigest,
    file_size,
    layout_bytes,
)
from .store_files import StoreFiles
from .store_folder import StoreFolder, now
from .store_index import KnownWay, worth

HELD_PIECES = 4  # pieces that are held and written at a time; the rest of a long text follows later
CHECKED = 16  # most checkpoints that one `next_piece` looks up: it runs between two steps of the model
WORTH_FETCHING = 16  # tokens that the disk must know in addition to the memory


@dataclass(eq=False)
class StoredPiece:
    """The unit of writing: a checkpoint's text from cuts[0] to cuts[-1], and its states if it ends there.

    pages: the first one holds cuts[0]; row: -1 where there are no states, or not yet.
    """

    point: Checkpoint
    ids: Tokens
    cuts: list[int]
    pages: list[int]
    row: int
    boundary: bool
    logits: np.ndarray | None
    saved: int  # tokens that need not be processed again
    owner: bytes


@dataclass(eq=False)
class Fetch:
    """A text that is being read from disk: pages of its first `way.position` tokens, to be filled from `start` on."""

    ids: Tokens
    way: KnownWay
    start: int
    pages: list[int]
    row: int
    logits: np.ndarray | None = None
    failed: bool = False
    pieces: list[FileHeader] = field(default_factory=list)
    owner: bytes = b""


class CacheStore:
    """The files of `cache` in `folder`, at most `budget` bytes. warn: called with one line per problem.

    Raises UsageError if the cache rounds its states.
    """

    def __init__(
        self, cache: PromptCache, folder: StoreFolder, budget: int, n_vocab: int, warn: Callable[[str], None]
    ) -> None:
        if cache.kind != "f32":
            raise UsageError(f"only exact states can be kept on disk, these are {cache.kind}.")
        self.cache, self.folder, self.n_vocab = cache, folder, n_vocab
        self.files = StoreFiles(folder, budget, n_vocab, self._layout, warn, recurrent=cache.memory.is_recurrent)
        self._looked_up: WeakKeyDictionary[Checkpoint, int] = WeakKeyDictionary()  # -> its `used` then

    # --- the owner of the memory ---
    def next_piece(self) -> StoredPiece | None:
        """The piece to write next, held until `release`; None: nothing to write now."""
        tree, memory, index = self.cache.tree, self.cache.memory, self.files.index
        if self.files.failing:
            return None
        new = [(n, p) for n in tree for p in n.checkpoints.values() if self._looked_up.get(p) != p.used]
        for node, point in sorted(new, key=lambda each: self.cache.worth(*each), reverse=True)[:CHECKED]:
            ids, owner = tree.text(node, point.position), node.root.owner
            cuts, there = index.missing(ids, owner)
            digest = TextDigest(self.folder.key, ids, owner)
            state = index.state(digest.at(len(ids))) if memory.is_recurrent else None
            if cuts or (memory.is_recurrent and not _says_all(state, point)):
                if self._size(cuts or [len(ids)], point.logits is not None) <= self.files.budget:
                    return self._held(node, point, ids, cuts or [len(ids)])
            else:
                self.files.use([*there, *([state.name] if state is not None else [])])
            self._looked_up[point] = point.used
        return None

    def _held(self, node: Node, point: Checkpoint, ids: Tokens, cuts: list[int]) -> StoredPiece:
        memory, cuts = self.cache.memory, cuts[: HELD_PIECES + 1]
        pages = self.cache.tree.pages(node, cuts[-1])[cuts[0] // PAGE :] if memory.attention.specs else []
        before = max((p for part in node.path() for p in part.checkpoints if p < point.position), default=0)
        with_state = cuts[-1] == len(ids) and memory.is_recurrent
        piece = StoredPiece(
            point, ids, cuts, [memory.attention.pool.share(page) for page in pages],
            memory.recurrent.pool.share(point.row) if with_state else -1,
            point.boundary, point.logits, point.position - before, node.root.owner,
        )  # fmt: skip
        memory.lend(piece)
        return piece

    def release(self, piece: StoredPiece, *, written: bool) -> None:
        """End the hold on a piece of `next_piece`.

        A piece that could not be written is tried again when it is used again, or when the disk can be written again.
        """
        self.cache.memory.end_loan(piece)
        if not written and not self.files.failing:
            self._looked_up[piece.point] = piece.point.used

    def begin(self, ids: Sequence[int], owner: bytes = b"") -> Fetch | None:
        """Room for a text of which the disk knows more than the memory, else None. Then call `fetch` and `end`."""
        tokens, memory = np.asarray(ids, np.int32), self.cache.memory
        way = self.way(tokens, owner)
        if way is None:
            return None
        node, n = self.cache.tree.match(tokens, owner)
        pieces = [piece for piece in way.pieces if piece.end > n]
        start = pieces[0].start if pieces else way.position
        fetch = Fetch(tokens[: way.position], way, start, [], -1, pieces=pieces, owner=owner)
        try:
            if memory.attention.specs:
                before = self.cache.tree.pages(node, start)
                fetch.pages = [memory.attention.pool.share(page) for page in before]
                fetch.pages += memory.attention.pool.take_many(pages_of(way.position) - start // PAGE)
            if way.state is not None:
                fetch.row = memory.recurrent.pool.take()
        except StateError:  # sequences hold all pages or rows
            memory.end_loan(fetch)
            return None
        memory.lend(fetch)
        return fetch

    def way(self, ids: Tokens, owner: bytes = b"") -> KnownWay | None:
        """The files that `begin` would fetch for this text, or None."""
        self.files.look_up(ids, owner)
        if not len(self.files.index):
            return None
        known, way = self.cache.find(ids, owner), self.files.index.find(ids, owner)
        have = known.position if known else 0
        if way is None or way.position < have + WORTH_FETCHING or way.position > self.cache.memory.n_ctx:
            return None
        return way

    def end(self, fetch: Fetch) -> None:
        """Add a fetched text to the cache unless reading it failed, and end the hold on its pages."""
        memory, tree = self.cache.memory, self.cache.tree
        if not fetch.failed:
            # a page in whose middle the fetched part starts is replaced with its copy
            pages = self._own_pages(fetch)
            node = tree.insert(fetch.ids, pages, fetch.owner)
            at = fetch.way.position
            if at not in node.checkpoints:
                row = memory.recurrent.pool.share(fetch.row) if fetch.row >= 0 else -1
                boundary = fetch.way.state is None or fetch.way.state.boundary
                self.cache.place(node, Checkpoint(at, row, boundary, fetch.logits))
        memory.end_loan(fetch)

    def _own_pages(self, fetch: Fetch) -> list[int]:
        """One page per PAGE tokens: where the fetched part starts within a page, its copy."""
        n = fetch.start // PAGE
        return [*fetch.pages[:n], *fetch.pages[pages_of(fetch.start) :]]

    # --- the reader ---
    def fetch(self, fetch: Fetch) -> None:
        """Read the arrays. A damaged file is removed and `fetch.failed` set; `begin` may then find another way."""
        attention, recurrent = self.cache.memory.attention, self.cache.memory.recurrent
        if fetch.start % PAGE and attention.specs:
            first = fetch.start // PAGE
            attention.copy_page(fetch.pages[first], fetch.pages[first + 1])
        pages, header = self._own_pages(fetch), None
        try:
            for header in fetch.pieces:
                arrays = self.files.read(header)
                end = min(header.end, fetch.way.position)
                attention.load(pages[header.start // PAGE : pages_of(end)], end, dict(arrays), header.start)
            header = fetch.way.state
            if header is not None:
                if TextDigest(self.folder.key, fetch.ids, fetch.owner).at(len(fetch.ids)) != header.after:
                    raise StateError(f"{header.name} belongs to another text.")
                arrays = self.files.read(header)
                logits = arrays.pop("logits", None)
                fetch.logits = None if logits is None else logits.astype(np.float32)
                recurrent.load(fetch.row, arrays)
        except (StateError, OSError) as error:
            assert header is not None
            fetch.failed = True
            self.files.give_up(header.name, error)
            return
        self.files.use([*(piece.name for piece in fetch.way.pieces), *([header.name] if header is not None else [])])

    def _layout(self, header: FileHeader) -> ArrayLayout:
        return self._piece_layout(header.start, header.end) if header.kind == PIECE else self._states(header.logits)

    def _piece_layout(self, start: int, end: int) -> ArrayLayout:
        return self.cache.memory.attention.layout(end, start)

    def _states(self, logits: bool) -> ArrayLayout:
        f32 = np.dtype(np.float32)
        layout = {name: (f32, shape) for name, shape in self.cache.memory.recurrent.shapes().items()}
        return layout | ({"logits": (f32, (self.n_vocab,))} if logits else {})

    # --- the writer ---
    def write(self, piece: StoredPiece) -> bool:
        """Write a piece to the disk. False: writing failed, or the piece is not worth its room."""
        digest = TextDigest(self.folder.key, piece.ids, piece.owner)
        after = [digest.at(n) for n in piece.cuts]
        size = self._size(piece.cuts, piece.logits is not None if piece.row >= 0 else None)
        worth_it = worth(piece.saved, piece.boundary, 0.0) if self.files.index.recurrent else now()
        if self.files.failing or not self.files.make_room(size, worth_it, after[0]):
            return False
        try:
            for i, (start, end) in enumerate(pairwise(piece.cuts)):
                header = FileHeader(PIECE, after[i], after[i + 1], start, end, piece.ids[start:end], used=now())
                pages = piece.pages[start // PAGE - piece.cuts[0] // PAGE :][: pages_of(end) - start // PAGE]
                self.files.add(header, (array for _, array in self.cache.memory.attention.export(pages, end, start)))
            if piece.row >= 0:
                header = FileHeader(
                    STATE, after[-1], after[-1], piece.cuts[-1], piece.cuts[-1], np.zeros(0, np.int32),
                    piece.boundary, piece.logits is not None, used=now(),
                )  # fmt: skip
                self.files.add(header, self._state_arrays(piece))
        except OSError as error:
            self.files.failed(error)
            self._looked_up.clear()
            return False
        self.files.written()
        return True

    def _size(self, cuts: list[int], logits: bool | None) -> int:
        """Bytes of a piece's files. logits: whether the states include logits; None: no states."""
        size = sum(file_size(b - a, layout_bytes(self._piece_layout(a, b))) for a, b in pairwise(cuts))
        if logits is not None and self.files.index.recurrent:
            size += file_size(0, layout_bytes(self._states(logits)))
        return size

    def _state_arrays(self, piece: StoredPiece) -> Iterator[np.ndarray]:
        yield from (array for _, array in self.cache.memory.recurrent.export(piece.row))
        if piece.logits is not None:
            yield piece.logits


def _says_all(state: FileHeader | None, point: Checkpoint) -> bool:
    """Whether a stored state has all that the checkpoint has: logits and the boundary flag."""
    return state is not None and state.boundary >= point.boundary and (state.logits or point.logits is None)
