"""Compiles a form in a separate process first: a hang, a stack overflow or too much memory there harms nobody.

llguidance cannot be interrupted and does not limit everything: intersections of expressions, a chain of 20 000
references. So a process compiles the grammar first, with a vocabulary of bytes, and stays for the next one. It reads
lines of JSON, {"kind", "text", "n_vocab", "control": {id: text}, "ends"}, and answers each with {"error"} or
{"source"}; a schema with "widens" is answered with {"schema", "notes"}.
"""

import json
import re
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hybrid.quant.ggml.errors import HybridError, UsageError

from .constraint import Constraint, DeadEndError
from .grammar import Grammar
from .schema_place import place_of
from .vocabulary import guide_of
from .widened import ANY_OBJECT, widened

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer

SECONDS = 2  # of CPU time, for one form; 100 kB of tools take 0.1
MOST_MEMORY = 2 << 30  # bytes of address space, beyond what the libraries take
STACK = 4 << 20  # bytes: threads that compile the form afterwards have more
READY = b"ready\n"  # the process's first line
STEPS = 4  # tokens that are tried: some grammars compile and then fail
N_BYTES = 256
_PLACE = re.compile(r" \(at [^)]*\)$")
WITHOUT_TOKENS = ("json_schema", "gbnf", "regex", "choice")  # other kinds may name tokens of the vocabulary


class Trial:
    """The process, started on demand; it ends with this object. For one thread at a time."""

    def __init__(self, tokenizer: "Tokenizer", seconds: int = SECONDS) -> None:
        self._tokenizer, self._seconds = tokenizer, seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.n_ended = 0  # processes that died of a form
        self._end: weakref.finalize[Any, Any] | None = None

    def source(self, grammar: Grammar) -> str:
        """The grammar for llguidance. Raises UsageError if it does not compile, or takes too much time or memory."""
        asked: dict[str, Any] = grammar.to_json()
        if grammar.kind not in WITHOUT_TOKENS:
            asked |= _tokens(self._tokenizer)
        reply = self._reply(json.dumps(asked).encode() + b"\n")
        if reply is None:
            raise UsageError(
                f"{grammar.name} cannot be used: compiling it takes more than {self._seconds} seconds, "
                "or too much memory. Make it simpler."
            )
        if "error" in reply:
            raise UsageError(reply["error"])
        return str(reply["source"])

    def widened(self, schema: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A schema that can be compiled, and a sentence for each widened part: see widened.py."""
        asked = {**Grammar.json_schema(schema).to_json(), "widens": True}
        reply = self._reply(json.dumps(asked).encode() + b"\n")
        if reply is None:
            return ANY_OBJECT, ("the schema cannot be enforced: compiling it takes too much time or memory",)
        return reply["schema"], tuple(reply["notes"])

    def _reply(self, line: bytes) -> dict[str, Any] | None:
        """The process's answer to a line; None if the process died of it."""
        process = self._begun()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        except BaseException:  # Ctrl-C: the next form would get this answer
            self.close()
            raise
        if not answer.endswith(b"\n"):
            self.close()
            self.n_ended += 1
            return None
        reply: dict[str, Any] = json.loads(answer)
        return reply

    def _begun(self) -> "subprocess.Popen[bytes]":
        if self.process is None:
            # a session of its own: Ctrl-C is for the caller. -P: nothing is imported from the current folder
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(self._seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._end = weakref.finalize(self, _ended, self.process)
            assert self.process.stdout is not None
            if self.process.stdout.readline() != READY:
                self.close()
                raise HybridError(
                    f"forms cannot be compiled: {sys.executable} with {__name__}, which tries them, does not start."
                )
        return self.process

    def close(self) -> None:
        """Ends the process; the next use starts another."""
        if self._end is not None:
            self._end()
        self.process = self._end = None


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # unread input
            pipe.close()


def _tokens(tokenizer: "Tokenizer") -> dict[str, Any]:
    ids = [i for i in range(tokenizer.n_vocab) if tokenizer.is_control(i)]
    control = {str(i): tokenizer.piece(i).decode("utf-8", "replace") for i in ids}
    return {"n_vocab": tokenizer.n_vocab, "control": control, "ends": sorted(tokenizer.eog)}


# --- in the process ---
class ByteVocabulary:
    """A vocabulary with a token for each byte. All others are control tokens: `control` has their texts, by id."""

    bos = eos = None

    def __init__(
        self, n_vocab: int = N_BYTES + 1, control: Mapping[int, bytes] = MappingProxyType({}), ends: Iterable[int] = ()
    ) -> None:
        self.n_vocab, self._control, self.eog = n_vocab, control, frozenset(ends) or frozenset([n_vocab - 1])
        free = (i for i in range(n_vocab) if i not in control)
        self._ids = [i for _, i in zip(range(N_BYTES), free, strict=False)]
        self._bytes = {token: byte for byte, token in enumerate(self._ids)}
        self.vocabulary = self

    def of_type(self, kind: object) -> list[int]:
        """No token has any type."""
        return []

    def is_control(self, token: int) -> bool:
        return token not in self._bytes

    def piece(self, token: int) -> bytes:
        return bytes([self._bytes[token]]) if token in self._bytes else self._control.get(token, b"")

    def encode(self, text: str, **how: object) -> list[int]:
        return [self._ids[byte] for byte in text.encode("utf-8", "replace")]


def serve(lines: IO[bytes], answers: IO[bytes], seconds: int) -> None:
    """Answers each line until there are no more; `seconds` of CPU time for each."""
    plain = ByteVocabulary()
    whole: ByteVocabulary | None = None  # of the caller's only tokenizer
    for line in lines:
        _bound_time(seconds)
        asked = json.loads(line)
        if "control" in asked and whole is None:
            control = {int(i): text.encode() for i, text in asked["control"].items()}
            whole = ByteVocabulary(asked["n_vocab"], control, asked["ends"])
        vocabulary = whole if "control" in asked and whole is not None else plain
        grammar = Grammar.from_json(asked)
        answer = _widened(grammar, vocabulary) if "widens" in asked else _tried(grammar, vocabulary)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _tried(grammar: Grammar, vocabulary: ByteVocabulary) -> dict[str, Any]:
    try:
        source = grammar.source()
        constraint = Constraint(grammar, vocabulary, source)  # type: ignore[arg-type]
        _followed(constraint, vocabulary)
    except UsageError as error:
        return {"error": str(error)}
    except DeadEndError as error:
        return {"error": f"{grammar.name} cannot be used: {error.why}"}
    return {"source": source}


def _widened(grammar: Grammar, vocabulary: ByteVocabulary) -> dict[str, Any]:
    def fault(some: Grammar) -> str | None:
        says = _tried(some, vocabulary).get("error")
        return None if says is None else _PLACE.sub("", says).removeprefix("the schema cannot be used: ")

    def place(some: Grammar) -> str:
        return place_of(some.text, guide_of(vocabulary))  # type: ignore[arg-type]

    schema, notes = widened(json.loads(grammar.text), fault, place)
    return {"schema": schema, "notes": notes}


def _followed(constraint: Constraint, vocabulary: ByteVocabulary) -> None:
    """Takes the first tokens of some answer. Raises DeadEndError if that fails."""
    some = -np.arange(vocabulary.n_vocab, dtype=np.float32)
    for _ in range(STEPS):
        if constraint.ended:
            return
        token = int(constraint.masked(some).argmax())
        if token in vocabulary.eog:
            return
        constraint.accept(token)


def _bound_time(seconds: int) -> None:
    """Sets a limit on CPU time from now on; at the limit, the system ends this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))


def _bound_memory() -> None:
    if sys.platform == "linux":  # macOS has no such limit
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(seconds: int) -> None:
    """Serves until standard input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _bound_memory()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    threading.stack_size(STACK)
    thread = threading.Thread(target=serve, args=(sys.stdin.buffer, sys.stdout.buffer, seconds), daemon=True)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
