"""What a prompt cache has on disk, without the numbers: pieces of texts that follow each other, and states between.

A text is a way from the root: each piece begins where the one before it ends, as digests of the text up to there say.
Pieces end at multiples of LONGEST_PIECE and wherever a checkpoint is, so a text that grows gets new pieces and keeps
those it has, however the tree in memory is cut. Any thread may ask; nothing here touches the disk.
"""

import heapq
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .cache import BOUNDARY_WORTH
from .prefix_tree import common_beginning
from .store_file import LONGEST_PIECE, PIECE, FileHeader, TextDigest, Tokens

AGE_SECONDS = 60.0  # what was not used for so long is worth half


@dataclass(frozen=True)
class KnownWay:
    """How far the beginning of a text is on disk: `position` tokens, in pieces, of which the last may reach further,
    and the state there, None where the model has none."""

    position: int
    pieces: tuple[FileHeader, ...]
    state: FileHeader | None


class StoreIndex:
    """Headers of all files of one key. recurrent: whether texts can go on only where there is a state."""

    def __init__(self, key: bytes, *, recurrent: bool) -> None:
        self.key, self.recurrent = key, recurrent
        self.nbytes = 0
        self._headers: dict[str, FileHeader] = {}
        self._onward: dict[bytes, dict[str, FileHeader]] = {}  # pieces by the digest before them
        self._inward: dict[bytes, dict[str, FileHeader]] = {}  # by the one after them
        self._states: dict[bytes, FileHeader] = {}
        self._lock = threading.RLock()

    def root(self, owner: bytes = b"") -> bytes:
        """The digest before the texts of an owner."""
        return TextDigest(self.key, np.zeros(0, np.int32), owner).at(0)

    def __len__(self) -> int:
        return len(self._headers)

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    def add(self, header: FileHeader) -> None:
        """A file that is there now, in place of an older one of its name."""
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
        """A file that is there no more, if it was."""
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
        """They were needed just now."""
        with self._lock:
            for name in names:
                if name in self._headers:
                    self.add(replace(self._headers[name], used=now))

    # --- looking up ---
    def find(self, ids: Tokens, owner: bytes = b"") -> KnownWay | None:
        """The last position from which `ids` can go on: with states, logits are known there or a token is left for
        them; without, keys and values can be cut anywhere."""
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
        """Where the pieces of this text begin and end that are not there, [] if all are, and the names of the others.

        The last one ends after `ids`, so that a state can follow it.
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
        """After a text with this digest."""
        return self._states.get(after)

    def _ways(self, ids: Tokens, owner: bytes) -> tuple[dict[int, FileHeader | None], int, FileHeader | None]:
        """Positions that whole pieces lead to with the last of these; how far `ids` are known in all, and the piece
        that is known in part, if that is further."""
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
        """Those that lead to a position, the first one first."""
        pieces = []
        while (piece := ways[at]) is not None:
            pieces.append(piece)
            at = piece.start
        return pieces[::-1]

    # --- giving up ---
    def least_worth(self, now: float) -> list[tuple[float, str]]:
        """What could be given up, the least first, with what it is worth: states as `worth` says; of models without
        them the ends of texts, by when they were used."""
        with self._lock:
            if self.recurrent:
                return sorted((self._state_worth(state, now), state.name) for state in self._states.values())
            return sorted((p.used, p.name) for p in self._headers.values() if p.after not in self._onward)

    def take_out(self, name: str, also: bytes) -> list[str]:
        """Remove one of those, and the pieces that only led to it; returns the names. also: see `useless`."""
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
            if piece.end != position:  # not of a text: a file that somebody made
                break
            digest, position = piece.before, piece.start
            if digest in self._states:
                before = position
                break
        return worth(state.end - before, state.boundary, now - state.used)

    def take_out_text(self, ids: Tokens, *, onward: bool, owner: bytes = b"") -> list[str]:
        """Remove a text as far as no other one goes on from it; returns the names. onward: those others go before."""
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
        """What goes on from the end of a text, in the middle of a piece or behind one."""
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
        """Files that no text can go on with: behind a gap, or pieces that lead to no state. also: the digest after a
        piece that a state will follow yet."""
        with self._lock:
            # which owners there are, nobody knows: any piece that begins a text may be theirs
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
        """All, as they were at this moment."""
        with self._lock:
            return iter(list(self._headers.values()))


def worth(saved: int, boundary: bool, age: float) -> float:
    """Of a state that saves so many tokens and was not used for `age` seconds."""
    return saved * (BOUNDARY_WORTH if boundary else 1) / (1 + max(0.0, age) / AGE_SECONDS)
