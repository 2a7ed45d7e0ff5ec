"""Index of a prompt cache on disk, without arrays: pieces of texts that follow each other, and states between them.

A text is a path from the root: each piece begins where the one before it ends, as the digests of the text up to there
say. Pieces end at multiples of LONGEST_PIECE and at every checkpoint, so a text that grows gets new pieces and keeps
the old ones, however the tree in memory is split. Any thread may call; nothing here touches the disk.
"""

import heapq
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .cache import BOUNDARY_WORTH
from .prefix_tree import common_beginning
from .store_file import LONGEST_PIECE, PIECE, FileHeader, TextDigest, Tokens

AGE_SECONDS = 60.0  # the worth halves when a state was not used for so long


@dataclass(frozen=True)
class KnownWay:
    """The known prefix of a text on disk: `position` tokens, its pieces, and the state there, if the model has any.

    The last piece may reach further.
    """

    position: int
    pieces: tuple[FileHeader, ...]
    state: FileHeader | None


class StoreIndex:
    """Headers of all files of one key. recurrent: a text can only continue from a state."""

    def __init__(self, key: bytes, *, recurrent: bool) -> None:
        self.key, self.recurrent = key, recurrent
        self.nbytes = 0
        self._headers: dict[str, FileHeader] = {}
        self._onward: dict[bytes, dict[str, FileHeader]] = {}  # digest before -> pieces by name
        self._inward: dict[bytes, dict[str, FileHeader]] = {}  # digest after -> pieces by name
        self._states: dict[bytes, FileHeader] = {}
        self._lock = threading.RLock()

    def root(self, owner: bytes = b"") -> bytes:
        """The digest of an owner's empty text."""
        return TextDigest(self.key, np.zeros(0, np.int32), owner).at(0)

    def __len__(self) -> int:
        return len(self._headers)

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    def add(self, header: FileHeader) -> None:
        """Add a file, in place of an older one with the same name."""
        with self._lock:
            self.remove(header.name)
            self._headers[header.name] = header
            self.nbytes += header.size
            if header.kind == PIECE:
                self._onward.setdefault(header.before, {})[header.name] = header
                self._inward.setdefault(header.after, {})[header.name] = header
            else:
                self._states[header.after] = header

    def remove(self, name: str) -> None:
        """Remove a file, if it is in the index."""
        with self._lock:
            header = self._headers.pop(name, None)
            if header is None:
                return
            self.nbytes -= header.size
            if header.kind != PIECE:
                del self._states[header.after]
                return
            for table, digest in ((self._onward, header.before), (self._inward, header.after)):
                del table[digest][name]
                if not table[digest]:
                    del table[digest]

    def use(self, names: list[str], now: float) -> None:
        """Note that these files are used now."""
        with self._lock:
            for name in names:
                if name in self._headers:
                    self.add(replace(self._headers[name], used=now))

    # --- looking up ---
    def find(self, ids: Tokens, owner: bytes = b"") -> KnownWay | None:
        """The last position on disk from which `ids` can continue.

        A recurrent model needs a state there, and its logits or a token to compute them from. Keys and values alone can
        be cut anywhere.
        """
        with self._lock:
            ways, reach, last = self._ways(ids, owner)
            if not self.recurrent:
                pieces = self._pieces(ways, max(ways)) if last is None else [*self._pieces(ways, last.start), last]
                return KnownWay(reach, tuple(pieces), None) if pieces else None
            for at in sorted(ways, reverse=True):
                piece = ways[at]
                state = self._states.get(piece.after) if piece is not None else None
                if state is not None and state.end == at and (at < len(ids) or state.logits):
                    return KnownWay(at, tuple(self._pieces(ways, at)), state)
            return None

    def missing(self, ids: Tokens, owner: bytes = b"") -> tuple[list[int], list[str]]:
        """Cut positions of the pieces of this text that are not stored, or [], and names of the stored ones.

        The last cut is the end of `ids`, so that a state can follow it.
        """
        with self._lock:
            ways, reach, last = self._ways(ids, owner)
            at = max(ways)
            if not self.recurrent and last is not None and reach == len(ids):
                return [], [piece.name for piece in [*self._pieces(ways, last.start), last]]
            there = [piece.name for piece in self._pieces(ways, at)]
        n = len(ids)
        cuts = [at, *range((at // LONGEST_PIECE + 1) * LONGEST_PIECE, n, LONGEST_PIECE), n]
        return (cuts if at < n else []), there

    def state(self, after: bytes) -> FileHeader | None:
        """The state after the text with this digest."""
        return self._states.get(after)

    def _ways(self, ids: Tokens, owner: bytes) -> tuple[dict[int, FileHeader | None], int, FileHeader | None]:
        """The stored prefixes of `ids`: (ways, reach, last).

        ways   end of a chain of whole pieces -> its last piece; 0 -> None
        reach  number of known tokens in all
        last   the piece of which only a part matches, if that reaches further than whole pieces
        """
        ways: dict[int, FileHeader | None] = {0: None}
        digests, waiting = {0: self.root(owner)}, [0]
        reach, last = 0, None
        while waiting:
            start = heapq.heappop(waiting)
            for piece in self._onward.get(digests[start], {}).values():
                if piece.start != start:
                    continue
                known = common_beginning(piece.tokens, ids[start : piece.end])
                if known == piece.end - start:
                    if piece.end not in ways:
                        ways[piece.end], digests[piece.end] = piece, piece.after
                        heapq.heappush(waiting, piece.end)
                elif start + known > reach:
                    reach, last = start + known, piece
        whole = max(ways)
        return (ways, reach, last) if reach > whole else (ways, whole, None)

    def _pieces(self, ways: dict[int, FileHeader | None], at: int) -> list[FileHeader]:
        """The pieces that lead to a position, in order."""
        pieces = []
        while (piece := ways[at]) is not None:
            pieces.append(piece)
            at = piece.start
        return pieces[::-1]

    # --- giving up ---
    def least_worth(self, now: float) -> list[tuple[float, str]]:
        """(worth, name) of the files that could be given up, lowest first.

        These are states, rated by `worth`; for models without states the ends of texts, rated by time of last use.
        """
        with self._lock:
            if self.recurrent:
                return sorted((self._state_worth(state, now), state.name) for state in self._states.values())
            return sorted((p.used, p.name) for p in self._headers.values() if p.after not in self._onward)

    def take_out(self, name: str, also: bytes) -> list[str]:
        """Remove a file of `least_worth` and the pieces that only led to it; returns the names. also: see `useless`."""
        with self._lock:
            header = self._headers.get(name)
            if header is None or (header.kind == PIECE and header.after == also):
                return []
            self.remove(name)
            names, waiting = [name], [header.after] if self.recurrent else []
            while waiting:
                digest = waiting.pop()
                if digest == also or digest in self._states or digest in self._onward:
                    continue
                for piece in list(self._inward.get(digest, {}).values()):
                    self.remove(piece.name)
                    names.append(piece.name)
                    waiting.append(piece.before)
            return names

    def _state_worth(self, state: FileHeader, now: float) -> float:
        digest, position, before = state.after, state.end, 0
        while position and (pieces := self._inward.get(digest)):
            piece = next(iter(pieces.values()))
            if piece.end != position:  # inconsistent: a forged file
                break
            digest, position = piece.before, piece.start
            if digest in self._states:
                before = position
                break
        return worth(state.end - before, state.boundary, now - state.used)

    def take_out_text(self, ids: Tokens, *, onward: bool, owner: bytes = b"") -> list[str]:
        """Remove a text from its end up to where another continues from it; returns the names.

        onward: remove its continuations first.
        """
        with self._lock:
            ways, _, _ = self._ways(ids, owner)
            names = self._take_out_onward(ids, ways, self.root(owner)) if onward else []
            for end in sorted(ways, reverse=True):
                piece = ways[end]
                if piece is None or (digest := piece.after) in self._onward:
                    break
                names += [piece.name for piece in self._inward[digest].values()]
                names += [self._states[digest].name] if digest in self._states else []
                for name in names:
                    self.remove(name)
            return names

    def _take_out_onward(self, ids: Tokens, ways: dict[int, FileHeader | None], root: bytes) -> list[str]:
        """Remove continuations of a text from its end, which may lie within a piece or after one; returns the names."""
        waiting: list[FileHeader] = []
        for start, way in ways.items():
            rest = ids[start:]
            for piece in self._onward.get(way.after if way is not None else root, {}).values():
                if piece.start == start and len(piece.tokens) > len(rest) == common_beginning(piece.tokens, rest):
                    waiting.append(piece)
        names = []
        while waiting:
            piece = waiting.pop()
            if piece.name not in self._headers:
                continue
            waiting += self._onward.get(piece.after, {}).values()
            names += [piece.name] + ([self._states[piece.after].name] if piece.after in self._states else [])
            for name in names[-2:]:
                self.remove(name)
        return names

    def useless(self, also: bytes = b"") -> list[str]:
        """Names of files with which no text can continue: after a gap, or pieces that lead to no state.

        also: the digest after a piece that a state will still follow.
        """
        with self._lock:
            # the owners are unknown: any piece that begins a text may belong to one
            reached = dict.fromkeys((each.before for each in self._headers.values() if each.start == 0), 0)
            waiting = [*reached]
            while waiting:
                digest = waiting.pop()
                for piece in self._onward.get(digest, {}).values():
                    if piece.start == reached[digest] and piece.after not in reached:
                        reached[piece.after] = piece.end
                        waiting.append(piece.after)
            needed = {s.after for s in self._states.values() if reached.get(s.after) == s.end}
            waiting = [*needed, also] if self.recurrent else list(reached)
            needed.update(waiting)
            while waiting:
                for piece in self._inward.get(waiting.pop(), {}).values():
                    if piece.before not in needed:
                        needed.add(piece.before)
                        waiting.append(piece.before)
            return [h.name for h in self._headers.values() if not self._leads(h, needed, reached)]

    def _leads(self, header: FileHeader, needed: set[bytes], reached: dict[bytes, int]) -> bool:
        if header.kind != PIECE:
            return reached.get(header.after) == header.end
        return header.after in needed and reached.get(header.before) == header.start

    def headers(self) -> Iterator[FileHeader]:
        """A snapshot of all headers."""
        with self._lock:
            return iter(list(self._headers.values()))


def worth(saved: int, boundary: bool, age: float) -> float:
    """The worth of a state that saves `saved` tokens and was last used `age` seconds ago."""
    return saved * (BOUNDARY_WORTH if boundary else 1) / (1 + max(0.0, age) / AGE_SECONDS)
