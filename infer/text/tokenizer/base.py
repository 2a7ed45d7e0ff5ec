"""The base of all tokenizers: BOS and EOS, special tokens in text, bytes back to text."""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

from hybrid.quant.ggml.errors import TokenizerError, shown
from hybrid.quant.ggml.split_trial import is_panic
from hybrid.quant.ggml.token_types import TokenType

from ..stops import look
from .special import SpecialMatcher
from .vocabulary import Vocabulary

Place = Literal["nothing", "token", "text"]  # before a stretch of text
UNKNOWN_TEXT = " \u2047 "  # sentencepiece's text for its unknown token
_UNKNOWN = UNKNOWN_TEXT.encode()
SLICE = 1 << 18  # characters of a text after which a slice ends at the next possible cut
LONG = 1 << 12  # characters; a shorter text is encoded in less than 10 ms
# positions between words where a slice may end; an example of the text on both sides; tokens that cross it
_CUTS = ((r"[a-z]\n(?=[a-z])", ("a\n", "b"), rb"\n[a-z]"), (r"[a-z](?= [a-z])", ("a", " b"), rb"[a-z] "))


class Tokenizer(ABC):
    """Text to token ids and back, from the vocabulary in a GGUF file alone.

    `encode` accepts every str: lone surrogates become U+FFFD, NUL is an ordinary character. `decode` joins the exact
    bytes of all tokens before it decodes them, so a character may be spread over several tokens.
    """

    add_bos: bool
    add_eos: bool
    add_sep: bool  # between the texts of a pair, after EOS

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.kind = vocabulary.model
        self.n_vocab = len(vocabulary.tokens)
        self.bos = vocabulary.bos
        self.eos = vocabulary.eos
        self.sep = vocabulary.sep
        self.eot = vocabulary.eot
        self.eog = vocabulary.eog
        # add_bos or add_eos without the token's id has no effect
        self.add_bos = bool(vocabulary.add_bos) and self.bos is not None
        self.add_eos = bool(vocabulary.add_eos) and self.eos is not None
        self.add_sep = vocabulary.add_sep and self.sep is not None
        self._control = frozenset(vocabulary.of_type(TokenType.CONTROL)) | vocabulary.control_ends
        self._pieces: dict[int, bytes] = {}

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        continues: bool = False,
        dropped: str = "",
    ) -> list[int]:
        """Token ids of `text`.

        add_special    BOS and EOS where the vocabulary says so
        parse_special  the text of a control token becomes that token (chat templates); otherwise it is plain text. A
                       rendered chat template needs add_special=False, parse_special=True
        continues      the text continues another text: no BOS, and no leading space added by sentencepiece
        dropped        characters without tokens: no control token is found across them, and they are left out
        """
        matcher = self._all_special if parse_special else self._user_defined
        bos = add_special and self.add_bos and not continues
        ids: list[int] = [self.bos] if bos and self.bos is not None else []
        after: Place = "text" if continues else "nothing"
        for part in matcher.split(_valid(text)):
            if isinstance(part, int):
                ids.append(part)
                after = "token"
            else:
                for character in dropped:
                    part = part.replace(character, "")
                for text in self._slices(part) if part else ():
                    look()
                    ids.extend(self._encode_text(text, after))
                    after = "text"
        if add_special and self.add_eos and self.eos is not None:
            ids.append(self.eos)
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Text of `ids`. Bytes that are not UTF-8 become U+FFFD. skip_special: leave out control tokens."""
        stream = self.stream(skip_special=skip_special, at_start=True)
        return "".join([stream.push(token) for token in ids]) + stream.flush()

    def stream(
        self, *, skip_special: bool = False, at_start: bool = False, shown: Collection[int] = ()
    ) -> "StreamDecoder":
        """A decoder that takes token by token.

        at_start: the tokens begin a text, so that sentencepiece's leading space is dropped, as by `decode`; otherwise
        they continue one, and every space is kept. shown: control tokens that skip_special does not leave out.
        """
        return StreamDecoder(self, skip_special, at_start, shown)

    def piece(self, token: int) -> bytes:
        """The bytes of one token; for a control token, its name."""
        piece = self._pieces.get(token)
        if piece is None:
            self._check(token)
            piece = self._pieces[token] = b"" if self.vocabulary.is_padding(token) else self._piece(int(token))
        return piece

    def is_control(self, token: int) -> bool:
        """Whether a token is not text, but for example BOS, EOS or a tag of turns."""
        self._check(token)
        return token in self._control

    def is_eog(self, token: int) -> bool:
        """Whether a token ends an answer."""
        return token in self.eog

    def token(self, text: str) -> int | None:
        """The id of the special token spelled `text`, or None."""
        return self._all_special.find(text)

    def parts(self, text: str) -> list[str | int]:
        """Split a text into plain text and the control and user-defined tokens in it, as `encode` with parse_special
        does, but whitespace beside a token is kept."""
        return list(self._apart.split(_valid(text)))

    @property
    def special_texts(self) -> dict[int, str]:
        """Texts that become tokens only where special tokens are parsed, by token: control and unknown tokens."""
        special = self._special_ids(TokenType.CONTROL, TokenType.UNKNOWN)
        return {token: text for token in sorted(special) if (text := self.vocabulary.tokens[token])}

    @property
    def drops_leading_space(self) -> str:
        """The spaces that `decode` drops at the beginning of a text: "" (none), "one" or "all"."""
        return ""

    def _slices(self, text: str) -> Iterator[str]:
        """Cut a long text into slices that have the same tokens as the whole, if that is possible."""
        start = 0
        while len(text) - start > SLICE and self._cut is not None and (cut := self._cut.search(text, start + SLICE)):
            yield text[start : cut.end()]
            start = cut.end()
        yield text[start:]

    @cached_property
    def _cut(self) -> re.Pattern[str] | None:
        """Matches where a slice may end; None: nowhere."""
        places = [place for place, sides, over in _CUTS if self._can_be_cut(*sides, over)]
        return re.compile("|".join(places)) if places else None

    def _can_be_cut(self, before: str, after: str, over: bytes) -> bool:
        """Whether a slice may end between texts like `before` and `after`, whatever is around them; here: no token
        crosses the cut."""
        return not any(re.search(over, self.piece(token)) for token in range(self.n_vocab))

    @abstractmethod
    def _encode_text(self, text: str, after: Place) -> list[int]:
        """Ids of a stretch of plain text (not empty). after: the kind of thing before it."""

    @abstractmethod
    def _piece(self, token: int) -> bytes: ...

    def _check(self, token: int) -> None:
        if not 0 <= token < self.n_vocab:
            raise TokenizerError(f"token {token} is outside the vocabulary of {self.n_vocab} tokens")

    @cached_property
    def _user_defined(self) -> SpecialMatcher:
        return self._matcher(TokenType.USER_DEFINED)

    @cached_property
    def _all_special(self) -> SpecialMatcher:
        return self._matcher(TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNKNOWN)

    @cached_property
    def _apart(self) -> SpecialMatcher:
        # unlike `_all_special` also with sentencepiece's user-defined tokens, which the library finds itself
        ids = self._special_ids(TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNKNOWN)
        return SpecialMatcher((self.vocabulary.tokens[token], token) for token in sorted(ids))

    def _matcher(self, *types: TokenType, more: Collection[int] = ()) -> SpecialMatcher:
        """A matcher for the tokens of these types, and `more`."""
        texts, near = self.vocabulary.tokens, self.vocabulary.near
        ids = sorted(self._special_ids(*types).union(more))
        later = self.vocabulary.normalized.intersection(ids)
        if not later:
            return SpecialMatcher(((texts[token], token) for token in ids), near)
        rest = SpecialMatcher(((self._normalized(texts[token]), token) for token in ids if token in later), near)
        first = ((texts[token], token) for token in ids if token not in later)
        return SpecialMatcher(first, near, rest, self._normalized)

    def _normalized(self, text: str) -> str:
        """Text as normalized before `Vocabulary.normalized` tokens are searched in it."""
        return text

    def _special_ids(self, *types: TokenType) -> set[int]:
        ids, ends = set(self.vocabulary.of_type(*types)), self.vocabulary.control_ends
        return ids | ends if TokenType.CONTROL in types else ids - ends


class StreamDecoder:
    """Decodes token by token. The bytes of an unfinished UTF-8 character are held back."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, at_start: bool, shown: Collection[int] = ()) -> None:
        self._tokenizer, self._shown = tokenizer, frozenset(shown)
        self._skip_special = skip_special
        self._drop = tokenizer.drops_leading_space if at_start else ""
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; "" while a character is unfinished."""
        data = self._tokenizer.piece(token)
        if self._skip_special or self._drop:
            if self._tokenizer.is_control(token):
                skipped = self._skip_special and token not in self._shown
                if self._drop and data.startswith(b" ") and not skipped:
                    data, self._drop = data[1:], ""
                return "" if skipped else self._utf8.decode(data)
            if self._drop and data:
                rest = data if data == _UNKNOWN else data.removeprefix(b" ")
                if self._drop == "one" or rest:
                    self._drop = ""
                data = rest
        return self._utf8.decode(data)

    @property
    def is_whole(self) -> bool:
        """Whether no character is unfinished."""
        return not self._utf8.getstate()[0]

    def flush(self) -> str:
        """The rest at the end: U+FFFD for an unfinished character, otherwise ""."""
        return self._utf8.decode(b"", final=True)


def backend_ids(backend: Any, text: str, failing: str) -> list[int]:
    """Ids of a text from a tokenizers.Tokenizer. Raises TokenizerError if it panics, since `except Exception` does not
    catch a panic. failing: subject of the message."""
    try:
        if len(text) < LONG:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        else:  # `encode` does not release the GIL
            ids = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
    except BaseException as error:
        if not is_panic(error):
            raise
        raise TokenizerError(
            f"{failing} fails on a text of {len(text)} characters ({shown(error)}). Use another file of this model."
        ) from None
    return ids


def _valid(text: str) -> str:
    """`text` with U+FFFD for lone surrogates, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
