"""Published models answer as transformers does with the same, dequantized weights.

published/NAME.json, made with torch 2.14.1 and transformers 5.24.0 in float32: 20 questions, the ids of their prompts
(in the chat template, if the model has one) and of greedy answers of at most 64 tokens.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from published_models import published

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.encode import rendered_ids

HERE = Path(__file__).parent / "published"
MOST = 64


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_greedy_answers_are_those_of_transformers(name: str) -> None:
    """All tokens of all answers, and the ids of the prompts."""
    known = json.loads((HERE / f"{name}.json").read_text())
    assert len(known) == 20
    with LoadedModel.load(published(name), n_ctx=256, precision="exact") as model:
        params, other = SamplingParams(temp=0), []
        for one in known:
            asked = [{"role": "user", "content": one["question"]}]
            template = model.chat_template
            text = one["question"] + "\n" if template is None else template.render(asked)
            assert rendered_ids(model.tokenizer, text) == one["prompt"]
            seq = model.sequence()
            answer = generate(seq, one["prompt"], Sampler(params, model.n_vocab, model.tokenizer), max_tokens=MOST)
            for _ in answer:
                pass
            seq.close()
            want = one["ids"][:-1] if one["ids"][-1] in model.tokenizer.eog else one["ids"]
            if answer.result.ids != want:
                other.append(one["question"])
    assert other == []


def test_it_is_asked_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """The first command of a newcomer."""
    from hybrid.cli.main import run

    assert run(["run", str(published("smollm2")), "What is the capital of France?", "--exact", "--temp", "0"]) == 0
    assert capsys.readouterr().out == "The capital of France is Paris.\n"


def test_tags_in_a_message_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A message cannot end its turn, and a raw prompt can."""
    from hybrid.cli.main import run

    def tokens(*options: str) -> int:
        assert run(["run", str(published("smollm2")), "--json", "-n", "1", *options]) == 0
        return int(json.loads(capsys.readouterr().out)["prompt_tokens"])

    tag = "<|im_end|>"
    plain = tokens("-p", "a b")
    assert tokens("-p", f"a {tag} b") - plain == tokens("--raw", "--no-parse-special", "-p", tag) > 1
    assert tokens("-p", f"a {tag} b", "--parse-special") - plain <= 3
    assert tokens("--raw", "-p", tag) == 1


def test_perplexity(capsys: pytest.CaptureFixture[str], prose: Path, tmp_path: Path) -> None:
    """Far from a model that has lost its weights, whatever the precision."""
    from hybrid.cli.main import run

    (tmp_path / "text.txt").write_text(prose.read_text()[:12000])
    values = []
    for options in ([], ["--exact"]):
        command = ["perplexity", str(published("smollm2")), "-f", str(tmp_path / "text.txt"), "-c", "256", "--json"]
        assert run([*command, *options]) == 0
        values.append(float(json.loads(capsys.readouterr().out)["ppl"]))
    assert abs(values[0] / values[1] - 1) < 0.02 and 5 < values[1] < 40


def test_a_required_tool_is_called(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One call, with arguments that fit the schema."""
    from hybrid.cli.main import run

    city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "weather", "parameters": city}}]))
    command = ["run", str(published("smollm2")), "Weather in Paris and in Rome?", "--tools", str(tools), "--temp", "0"]
    assert run([*command, "--tool-choice", "weather", "--exact"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    call = json.loads(json.loads(line)["function"]["arguments"])
    assert json.loads(line)["function"]["name"] == "weather" and list(call) == ["city"] and "Paris" in call["city"]


def test_llm_asks_it(tmp_path: Path) -> None:
    """Through the plug-in, as `llm -m hybrid/FILE QUESTION`."""
    model = f"hybrid/{published('smollm2').resolve()}"
    told = subprocess.run(
        [sys.executable, "-m", "llm", "-m", model, "-o", "temperature", "0", "--no-log", "Say hello."],
        env=os.environ | {"LLM_USER_PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "hello" in told.stdout.lower()
