"""Settings in a line of a file of prompts replace those of the file; what is unknown or wrong is refused by name."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from converted_models import converted

from hybrid.infer import LoadedModel
from hybrid.infer.answers.prompt_files.line_settings import LineSettings
from hybrid.infer.answers.prompt_files.prompt_files import PromptBatch, read_prompts
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"max_token": 5}, "unknown field max_token. Did you mean max_tokens\\? There are: prompt, messages, id, stop"),
        ({"colour": 5}, "unknown field colour. There are: prompt, messages, id, stop"),
        ({"max_tokens": "5"}, "its limit is 5, expected a number of tokens"),
        ({"n_predict": -2}, "its limit is -2"),
        ({"stop": 5}, "its stop is 5, expected a text or a list of texts"),
        ({"stop": ["a", 5]}, "its stop is"),
        ({"parse_special": "yes"}, "its parse_special is yes, expected true or false"),
        ({"temperature": "hot"}, "a setting is of the wrong type"),
        ({"top_p": 7}, "top_p = 7"),
        ({"logit_bias": {"5": True}}, "logit_bias: expected pairs"),
    ],
)
def test_wrong_lines(line: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        found = LineSettings.read(line)
        assert found is not None
        found.params(SamplingParams(), None, 0)  # type: ignore[arg-type]


def test_fields_that_change_no_answer() -> None:
    assert LineSettings.read({"prompt": "a", "id": 5, "model": "m", "user": "u", "temperature": None}) is None


def test_a_line_has_its_own_settings(bundled: Path) -> None:
    """Alone in a file or beside others, with the seeds of its own samples."""
    lines = [
        {"prompt": "A cache"},
        {"prompt": "A cache", "max_tokens": 3, "temperature": 0},
        {"prompt": "A cache", "seed": 40, "stop": "e"},
        {"prompt": "A cache", "seed": -1, "max_tokens": 2},
    ]

    def answers(*some: dict[str, Any]) -> list[dict[str, Any]]:
        text, out = "\n".join(map(json.dumps, some)), io.StringIO()
        batch = PromptBatch(model, SamplingParams(seed=1, temp=1.0), 8, n_parallel=3, n_samples=2)
        batch.run(read_prompts(text, "f", model), out)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    with LoadedModel.load(converted(bundled), n_ctx=128, n_seq_max=3) as model:
        found = answers(*lines)
        alone = answers(lines[2])
    assert [one["tokens"] for one in found[:4]] == [8, 8, 3, 3]
    assert found[2]["text"] == found[3]["text"] != "", "greedy"
    assert [one["text"] for one in found[4:6]] == [one["text"] for one in alone] and len({*map(str, alone)}) == 2
    assert all("e" not in one["text"] for one in found[4:6])
    assert len({one["key"] for one in found}) == 8
