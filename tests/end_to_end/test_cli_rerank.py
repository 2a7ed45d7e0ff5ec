"""`hybrid rerank` as typed: documents in files and lines, tables and JSON, refused options."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from end_to_end.outcomes import Cli, ok
from random_rerankers import DOCUMENTS, QUERY, causal, encoder

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.rerank import relevance, scores
from hybrid.infer.evaluate.yes_no import YesNoReranker

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    return causal(random_checkpoints.CONFIGS["qwen3"], tmp_path_factory.mktemp("reranker"), data_dir)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    named = [{"text": DOCUMENTS[0], "name": "first"}, {"text": DOCUMENTS[1], "id": 7}, *DOCUMENTS[2:]]
    path.write_text("".join(json.dumps(each) + "\n\n" for each in named))
    return path


def test_a_table_and_json(reranker: Path, lines: Path, tmp_path: Path, cli: Cli) -> None:
    with LoadedModel.load(reranker, n_ctx=600, n_seq_max=3) as model:
        wanted = scores(YesNoReranker(model), QUERY, DOCUMENTS)
    order = (-wanted).argsort().tolist()
    code, out, err = cli("rerank", reranker, "-p", QUERY, lines)
    assert code == 0 and "5 documents, " in err
    rows = [line.split(None, 2) for line in out.splitlines()]
    assert rows[0] == ["rank", "score", "document"]
    assert [row[:2] for row in rows[1:]] == [[f"{n}", f"{relevance(wanted)[i]:.4f}"] for n, i in enumerate(order, 1)]
    labels = {i: row[2] for i, row in zip(order, rows[1:], strict=True) if len(row) > 2}
    assert (
        labels[0] == "first: A state of fixed size." and labels[1].startswith("7: Keys and values") and 2 not in labels
    )
    assert len(labels[1]) == 75 and labels[1].endswith("...") and labels[3].startswith("The end<|im_end|>")
    (tmp_path / "query.txt").write_text(QUERY + "\n")
    report = json.loads(ok(cli("rerank", reranker, "-f", tmp_path / "query.txt", lines, "--top", 2, "--json", "-t", 1)))
    assert report["query"] == QUERY and report["n_documents"] == 5
    assert [one["index"] for one in report["results"]] == order[:2]
    assert [one["log_odds"] for one in report["results"]] == wanted[order][:2].tolist()
    assert report["results"][0]["score"] == relevance(wanted)[order[0]] and not report["results"][0]["truncated"]


def test_documents_of_files_and_stdin(
    reranker: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("A state of\nfixed size.\n")
    found = []
    for text in ("one\r\n\ntwo\n", '{"text": "one"}\n"two"\n'):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        found.append(ok(cli("rerank", reranker, "-p", QUERY, "-", tmp_path / "a.txt")))
    assert found[0] == found[1] and "a.txt: A state of\n" in found[0]
    long = tmp_path / "long.txt"
    long.write_text("word " * 200)
    code, out, err = cli("rerank", reranker, "-p", QUERY, long, tmp_path / "a.txt", "--truncate", "-c", 150, "--json")
    assert code == 0 and "1 document was cut" in err
    assert {one["index"]: one["truncated"] for one in json.loads(out)["results"]} == {0: True, 1: False}
    asked = ("rerank", reranker, "-p", QUERY, tmp_path / "a.txt", "--json")
    plain, other = (json.loads(ok(cli(*asked, *more))) for more in ((), ("--instruction", "Find a proof.")))
    assert plain["results"][0]["log_odds"] != other["results"][0]["log_odds"]


def test_encoders(lines: Path, tmp_path: Path, data_dir: Path, cli: Cli, refused: Callable[..., str]) -> None:
    """The score of one label; a context that is too short; labels that do not rank."""
    path = encoder(tmp_path / "one", data_dir, "LABEL_0")
    with Embedder(path) as embedder:
        wanted = embedder.scores([(QUERY, text) for text in DOCUMENTS])[:, 0].astype(np.float64)
    report = json.loads(ok(cli("rerank", path, "-p", QUERY, lines, "--json")))
    assert {one["index"]: one["log_odds"] for one in report["results"]} == dict(enumerate(wanted.tolist()))
    assert [one["index"] for one in report["results"]] == (-wanted).argsort(kind="stable").tolist()
    (tmp_path / "long.txt").write_text("word " * 300)
    line = refused("rerank", path, "-p", QUERY, tmp_path / "long.txt", code=2)
    assert line.endswith("Cut it up, or use --truncate.")
    line = refused("rerank", encoder(tmp_path / "two", data_dir, "far", "near"), "-p", QUERY, lines, code=1)
    assert "scores no documents: it has the labels far, near, a reranker has one. Needed: " in line
    path = encoder(tmp_path / "none", data_dir, architectures=["BertModel"])
    assert "it makes embeddings only. Needed: " in refused("rerank", path, "-p", QUERY, lines, code=1)


def test_refused(
    reranker: Path, small: dict[str, Path], lines: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    for wrong, says in (("[1]\n", "expected a text, or an object with"), ("{a\n", "line 1 is not JSON: {a.")):
        (tmp_path / "wrong.jsonl").write_text(wrong)
        assert says in refused("rerank", reranker, "-p", "a", tmp_path / "wrong.jsonl", code=2)
    (tmp_path / "none.jsonl").write_text("\n")
    assert "there is no document in " in refused("rerank", reranker, "-p", "a", tmp_path / "none.jsonl", code=2)
    assert "stdin (-) can be read once" in refused("rerank", reranker, "-f", "-", "-", code=2)
    assert "give the query" in refused("rerank", reranker, lines, code=2)
    assert "give the query" in refused("rerank", reranker, "-p", "a", "-f", lines, lines, code=2)
    line = refused("rerank", small["q8_0"], "-p", "a", lines, code=1)
    assert "scores no documents: it is no reranker. Needed: an encoder with a classification head" in line
    line = refused("rerank", reranker, "-p", "a", lines, "-c", 120, code=2)
    assert "is too large: it has" in line and "use --truncate or a larger context (-c)" in line
