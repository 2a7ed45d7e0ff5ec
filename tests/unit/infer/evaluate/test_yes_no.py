"""Yes/no rerankers: tokens and scores of the published prompt, against whole prompts read one by one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from random_rerankers import DOCUMENTS, QUERY, causal
from retrieval_checkpoints import qwen3_reranker

from hybrid.convert import convert
from hybrid.infer import LoadedModel, Work
from hybrid.infer.evaluate import rerank
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.yes_no import INSTRUCTION, PROMPT, TURN_TOKENS, YesNoPrompts, YesNoReranker, prompt_of
from hybrid.infer.loading.classifier import Classifier
from hybrid.infer.model import measured
from hybrid.quant.ggml.errors import UnsupportedError, UsageError
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.writer import GGUFWriter

N_CTX = 700
# as on the model card of Qwen3-Reranker
PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module", params=["qwen3", "qwen35"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data_dir: Path
) -> Iterator[LoadedModel]:
    """An attention model, and one whose recurrent layers cannot go back."""
    folder = tmp_path_factory.mktemp("reranker")
    path = causal(random_checkpoints.CONFIGS[request.param], folder, data_dir)
    with LoadedModel.load(path, n_ctx=N_CTX, n_seq_max=4) as model:
        yield model
        assert model.n_free == 4


def published_ids(model: LoadedModel, document: str, instruction: str = INSTRUCTION) -> list[int]:
    """The tokens of a pair as the model card makes them: prefix, pair and suffix are encoded one by one."""

    def ids(text: str, *, special: bool = False) -> list[int]:
        return model.tokenizer.encode(text, add_special=False, parse_special=special)

    pair = f"<Instruct>: {instruction}\n<Query>: {QUERY}\n<Document>: {document}"
    return ids(PREFIX, special=True) + ids(pair) + ids(SUFFIX, special=True)


def slow(model: LoadedModel, prompts: list[list[int]]) -> np.ndarray:
    """Logit of "yes" less that of "no" among all logits, one prompt after the other."""
    yes, no = (model.tokenizer.encode(word, add_special=False)[0] for word in ("yes", "no"))
    found = []
    for ids in prompts:
        with measured(model, 1) as (seq,):
            logits = model.eval([Work(seq, ids)])[0].logits
        assert logits is not None
        found.append(float(logits[0, yes]) - float(logits[0, no]))
    return np.array(found)


@pytest.mark.parametrize("instruction", [None, "Find a proof. <|im_end|>"])
def test_scores_of_the_published_prompt(model: LoadedModel, instruction: str | None) -> None:
    reranker = YesNoReranker(model)
    prompts = [published_ids(model, document, instruction or INSTRUCTION) for document in DOCUMENTS]
    pairs = reranker.pairs(QUERY, DOCUMENTS, instruction=instruction)
    assert [pairs.shared + rest for rest in pairs.rest] == prompts and not pairs.truncated
    assert pairs.n_tokens == sum(map(len, prompts)) and pairs.longest == max(map(len, prompts))
    wanted = slow(model, prompts)
    found = rerank.scores(reranker, QUERY, DOCUMENTS, instruction=instruction)
    print("scores", found)
    assert (found == wanted).all() and np.ptp(found) > 1
    np.testing.assert_allclose(rerank.relevance(found), 1 / (1 + np.exp(-found)), rtol=1e-12)
    assert len(rerank.scores(reranker, QUERY, [])) == 0


@pytest.mark.parametrize("most", [1, 17, 300])
def test_however_it_is_cut(model: LoadedModel, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a few tokens, with free sequences and without; other texts get their turn between."""
    reranker = YesNoReranker(model)
    pairs = reranker.pairs(QUERY, DOCUMENTS)
    if most == 1:
        pairs = replace(pairs, rest=pairs.rest[::2])
    wanted = rerank.read(reranker.begin(pairs))
    once = len(pairs.shared) + sum(map(len, pairs.rest))
    reading = reranker.begin(pairs)
    rerank.read(reading)
    assert reading.n_read == once, "the query is read once"
    for n_taken, turn in ((0, TURN_TOKENS), (3, TURN_TOKENS), (2, 15)):
        monkeypatch.setattr("hybrid.infer.evaluate.yes_no.TURN_TOKENS", turn)
        with measured(model, n_taken):
            reading, n_turns = reranker.begin(pairs), 0
            while not reading.done:
                n, seconds = reading.step(most)
                assert 1 <= n <= most and seconds > 0
                n_turns += reading.between
                assert model.n_free >= 4 - n_taken - 1
            assert (reading.scores() == wanted).all() and reading.between
            assert n_turns > 1 if turn == 15 else n_turns == 1
            if not n_taken and most == 300:
                assert reading.n_read == once
    reading = reranker.begin(pairs)
    reading.step(most)
    reading.close()


def test_texts_that_do_not_fit(model: LoadedModel) -> None:
    reranker = YesNoReranker(model)
    long = [DOCUMENTS[0], "word " * N_CTX]
    with pytest.raises(UsageError, match=r"document 2 is too large: it has \d+ tokens, the context has \d+ beside"):
        reranker.pairs(QUERY, long)
    with pytest.raises(UsageError, match="the query is too large: it has"):
        reranker.pairs("word " * N_CTX, DOCUMENTS, truncate=True)
    pairs = reranker.pairs(QUERY, long, truncate=True)
    assert pairs.truncated == (1,) and pairs.longest == N_CTX
    cut, end = pairs.shared + pairs.rest[1], model.tokenizer.encode(SUFFIX, add_special=False, parse_special=True)
    whole = published_ids(model, long[1])
    assert cut == whole[: N_CTX - len(end)] + end
    assert (rerank.read(reranker.begin(pairs)) == slow(model, [pairs.shared + pairs.rest[0], cut])).all()


def test_which_models_are_rerankers(tmp_path: Path, data_dir: Path, model: LoadedModel) -> None:
    """By llama.cpp's prompt, or by the name in the file or of the file."""

    def of(name: str, **metadata: str) -> str | None:
        with GGUFWriter(tmp_path / f"{name}.gguf", "qwen3") as writer:
            for key, value in metadata.items():
                writer.add(key, value)
        with open_gguf(tmp_path / f"{name}.gguf") as gguf:
            return prompt_of(gguf)

    assert of("model") is None and of("other", **{"general.name": "Qwen3 Embedding 0.6B"}) is None
    assert of("a", **{"general.name": "Qwen3 Reranker 4B"}) == of("my-qwen3-reranker-0.6b-q8") == PROMPT
    stated = PREFIX + "<Instruct>: " + INSTRUCTION + "\n<Query>: {query}\n<Document>: {document}" + SUFFIX
    assert of("b", **{"tokenizer.chat_template.rerank": stated}) == PROMPT
    assert of("c", **{"tokenizer.chat_template.rerank": "Q {query} D {document} !"}) == "Q {query} D {document} !"
    assert of("d", **{"tokenizer.chat_template.rerank": "{document} {query}"}) is None
    other = YesNoPrompts(model.tokenizer, "Q {query} D {document} !")
    pairs = other.pairs("a", ["b"], n_ctx=99, truncate=False)
    assert pairs.shared + pairs.rest[0] == model.tokenizer.encode("Q a D b !", add_special=False)


def test_files_with_a_head(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As converted by llama.cpp and here: the scores of the head, about those of all logits; the prompt takes an
    instruction. Labels that do not rank are refused."""
    scores = {}
    for name, convert_it in (("head", True), ("plain", False)):
        source = qwen3_reranker(tmp_path / name, data_dir, tie_word_embeddings=False)
        if not convert_it:
            source = source.rename(source.with_name("other"))
        path = tmp_path / f"qwen3-reranker-{name}.gguf"
        convert(source, path, outtype="f32")
        with LoadedModel.load(path, n_ctx=N_CTX, n_seq_max=3, precision="exact") as model:
            assert ("cls.output.weight" in model.gguf.tensors) is convert_it
            assert prompt_of(model.gguf) == PROMPT
            reranker = YesNoReranker(model)
            scores[name] = rerank.scores(reranker, QUERY, DOCUMENTS)
            scores[f"{name} asked"] = rerank.scores(reranker, QUERY, DOCUMENTS, instruction="Find a proof.")
    np.testing.assert_allclose(scores["head"], scores["plain"], atol=1e-4)
    np.testing.assert_allclose(scores["head asked"], scores["plain asked"], atol=1e-4)
    assert np.abs(scores["head"] - scores["head asked"]).max() > 1e-2
    with Embedder(tmp_path / "qwen3-reranker-head.gguf", n_ctx=N_CTX, precision="exact") as embedder:
        found = embedder.scores([(QUERY, document) for document in DOCUMENTS]).astype(np.float64)
    assert (found[:, 0] - found[:, 1] == scores["head"]).all()
    with LoadedModel.load(tmp_path / "qwen3-reranker-head.gguf", n_ctx=64) as model:
        head = Classifier.read(model.gguf, 96, 1e-6)
        assert head is not None
        monkeypatch.setattr(Classifier, "read", lambda *_: replace(head, labels=("no", "yes")))
        with pytest.raises(UnsupportedError, match="has the labels no, yes: a reranker has one, or yes and no"):
            YesNoReranker(model)


def test_a_vocabulary_without_the_answers(data_dir: Path) -> None:
    from reference.tokenizer_files import bpe

    from hybrid.infer.text.tokenizer import load_tokenizer

    with pytest.raises(UnsupportedError, match='has no token "yes"'):
        _ = YesNoPrompts(load_tokenizer(bpe(data_dir / "tokenizers/bpe_qwen.json", "qwen2"))).answers
