"""Translated options and edited tests of llama-server, without either."""

import json
from pathlib import Path

import llama_server_suite as suite
import pytest
from llama_server import cases, stand_in

from hybrid.cli.main import run
from hybrid.cli.serve.models.settings_file import read_tables


def test_options_are_those_of_hybrid_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chatml.jinja").write_text("x")
    given = (
        "--port 80 --temp 0.8 --seed 42 --host h --offline --hf-repo ggml-org/test-model-stories260K --batch-size 32 "
        "--ctx-size 512 --parallel 2 --n-predict 64 --no-slots --jinja --chat-template chatml --cache-ram 100 "
        "--api-key k"
    )
    ours, ignored = stand_in.translated(given.split(), tmp_path)
    assert ours[0] == str(tmp_path / "text.gguf")
    options = dict(zip(*[iter(option for option in ours[1:] if option != "--no-slots")] * 2, strict=True))
    assert Path(options.pop("--api-key-file")).read_text() == "k"
    assert options == {
        "--port": "80",
        "--temp": "0.8",
        "--seed": "42",
        "--host": "h",
        "--ctx": "256",
        "--parallel": "2",
        "--n-predict": "64",
        "--chat-template": str(tmp_path / "chatml.jinja"),
        "--checkpoint-budget": "100MiB",
        "--threads": "1",
    }
    assert [line.split(":")[0] for line in ignored] == ["--offline", "--batch-size 32", "--jinja"]
    unified = ["--model", "stories260K", "--ctx-size", "512", "--parallel", "2", "--kv-unified"]
    ours, _ = stand_in.translated(unified, tmp_path)
    assert ours[ours.index("--ctx") + 1] == "512", "shared by all there, as much for each here"
    several = ["--models-max", "2", "--no-models-autoload", "--sleep-idle-seconds", "1", "--lora", "x.gguf"]
    ours, _ = stand_in.translated(several, tmp_path)
    assert ours[0] == "--models-file" and set(several) - {"--sleep-idle-seconds", "1"} < {*ours}
    assert ours[ours.index("--idle") + 1] == "1s"
    models = read_tables(Path(ours[1]))
    assert [table.name for table in models] == [*stand_in.ROUTED]
    assert [str(table.model) for table in models] == [str(tmp_path / name) for name in stand_in.ROUTED.values()]
    for wrong in ("--hf-repo other/model", "--model stories260K --model-draft x", "--hf-repo ggml-org/stories15M-2"):
        with pytest.raises(stand_in.NoCounterpartError):
            stand_in.translated(wrong.split(), tmp_path)
    assert run(["serve", "--help"]) == 0
    told = capsys.readouterr().out
    for option in (*stand_in.SAME.values(), *stand_in.FLAGS.values(), "--api-key-file", "--checkpoint-budget", "--ctx"):
        assert option in told, option


def test_a_number_is_replaced_where_it_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test_a.py"
    file.write_text("@mark(5)\ndef f():\n    assert x == 5\n\n\ndef g():\n    assert x == 5\n")
    change = cases.Substitution("test_a.py", "f", "== 5", "== 6")
    monkeypatch.setattr(cases, "SUBSTITUTIONS", [change, cases.Substitution("test_a.py", "f", "(5)", "(7)")])
    suite.substitute(tmp_path)
    assert file.read_text() == "@mark(7)\ndef f():\n    assert x == 6\n\n\ndef g():\n    assert x == 5\n"
    with pytest.raises(SystemExit, match="f has '== 5' 0 times, expected 1"):
        suite.substitute(tmp_path)


def test_the_page_counts_and_gives_reasons() -> None:
    assert cases.why_not("test_vision_api.py::test_a[b]", slow=False) == ("does not apply", cases.IMAGES)
    assert cases.why_not("test_basic.py::test_server_props", slow=False) is None
    assert cases.why_not("test_basic.py::test_server_props", slow=True) is not None
    results = [
        {"test": "test_a.py::f[1]", "outcome": "passed", "why": ""},
        {"test": "test_a.py::f[2]", "outcome": "failed", "why": "assert 1 == 2 | 3"},
        {"test": "test_b.py::g", "outcome": "does not apply", "why": "a page"},
        {"test": "test_c.py::h", "outcome": "decided otherwise", "why": "one name"},
    ]
    assert suite.summary(results) == (
        "1 of 2 cases that apply pass (50.0 %); 0 not run, 1 decided otherwise, 1 does not apply"
    )
    page = suite.page(json.loads(json.dumps(results)))
    assert "| `test_a f` | 1 | assert 1 == 2 \\| 3 |" in page and "| `test_b g` | 1 | a page |" in page
