"""Tokens of a pair of texts (a query and a document) for models that score them.

BERT:      [CLS] query [SEP] document [SEP]     tokens from the document on are of the second type
RoBERTa:   <s> query </s></s> document </s>
templates: the file's `tokenizer.chat_template.rerank`, a text with {query} and {document}
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hybrid.quant.ggml.errors import FormatError, Remedy, UsageError

from ..text.literal_text import BREAK, LiteralText
from ..text.tokenizer import MetadataFile, Tokenizer

TEMPLATE = "tokenizer.chat_template.rerank"
_QUERY, _DOCUMENT = "{query}", "{document}"
Scored = tuple[str, str] | str


@dataclass(frozen=True)
class TextIds:
    """Tokens of a text, or of a pair whose second text begins at index `second`. n_cut: tokens that it has lost."""

    ids: list[int]
    second: int
    n_cut: int = 0


class PairTokens:
    """Makes the tokens of texts and pairs for one file. n_ctx: limit on tokens."""

    def __init__(self, gguf: MetadataFile, tokenizer: Tokenizer, n_ctx: int, *, has_context: bool) -> None:
        self.tokenizer, self.n_ctx = tokenizer, n_ctx
        self._remedy = Remedy.TRUNCATE_OR_LARGER_CONTEXT if has_context else Remedy.TRUNCATE
        template = gguf.metadata.get(TEMPLATE)
        if template is not None and (
            not isinstance(template, str) or template.count(_QUERY) != 1 or template.count(_DOCUMENT) != 1
            or template.index(_QUERY) > template.index(_DOCUMENT)
        ):  # fmt: skip
            raise FormatError(
                f"{gguf.path.name}: {TEMPLATE} is not a text with {_QUERY}, then {_DOCUMENT}. Convert the model again."
            )
        self._template: str | None = template
        self._literal = LiteralText(tokenizer) if template else None

    def all(self, texts: Sequence[Scored], *, truncate: bool) -> list[TextIds]:
        """The tokens of every text or (query, document). truncate: a document that does not fit loses its last tokens.

        Raises UsageError, which names the first text (counted from 1) that is too large, or empty without any token.
        """
        found = []
        for i, text in enumerate(texts):
            whole = self.one(text)
            if len(whole.ids) > self.n_ctx:
                if not truncate:
                    raise UsageError(
                        f"text {i + 1} is too large: it has {len(whole.ids)} tokens, the context has {self.n_ctx}.",
                        remedy=self._remedy,
                    )
                n_cut = len(whole.ids) - self.n_ctx
                whole = replace(self.one(text, n_cut), n_cut=n_cut)
                if len(whole.ids) > self.n_ctx:
                    raise UsageError(
                        f"text {i + 1} is too large: without its document it has {len(whole.ids)} tokens, the context "
                        f"has {self.n_ctx}. Shorten the query."
                    )
            if not whole.ids:
                raise UsageError(f"text {i + 1} is empty, and this model puts nothing around a text. Leave it out.")
            found.append(whole)
        return found

    def one(self, text: Scored, without: int = 0) -> TextIds:
        """The tokens of a text or a pair. without: this many of its last tokens are left out, but not those that the
        model wants at its end."""
        t = self.tokenizer
        if isinstance(text, str):
            ids = t.encode(text)
            kept = 1 if t.add_eos else 0
            ids = ids[: max(0, len(ids) - kept - without)] + ids[len(ids) - kept :] if without else ids
            return TextIds(ids, len(ids))
        query, document = text
        if self._template is not None:
            return self._rendered(self._template, query, document, without)
        end = [t.eos] if t.add_eos and t.eos is not None else []
        first = [t.bos] if t.add_bos and t.bos is not None else []
        first += t.encode(query, add_special=False) + end
        first += [t.sep] if t.add_sep and t.sep is not None else []
        second = t.encode(document, add_special=False)
        return TextIds(first + second[: max(0, len(second) - without)] + end, len(first))

    def _rendered(self, template: str, query: str, document: str, without: int) -> TextIds:
        assert self._literal is not None
        head, rest = template.split(_QUERY)
        between, tail = rest.split(_DOCUMENT)
        head += self._literal.text(query) + between

        def encoded(text: str, *, continues: bool = False) -> list[int]:
            return self.tokenizer.encode(
                text, add_special=False, parse_special=True, continues=continues, dropped=BREAK
            )

        document = self._literal.text(document)
        if not without:
            ids = encoded(head + document + tail)
            return TextIds(ids, len(ids))
        # beside the document, texts are cut where only tokens of the template can be
        begin, end = len(encoded(head)), encoded(tail, continues=True)
        ids = encoded(head + document)
        ids = ids[: max(begin, len(ids) - without)] + end
        return TextIds(ids, len(ids))
