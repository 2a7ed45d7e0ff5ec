"""lm-evaluation-harness as a client of `hybrid serve`: its own models for servers get the scores of `hybrid eval`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli
from end_to_end.templated import templated
from harness_tasks import write_tasks
from http_server import WAIT, Server, serving

from hybrid.cli.harness.evaluation import Protocol, evaluate
from hybrid.cli.harness.model import HarnessModel
from hybrid.cli.harness.tasks import found, loaded, quiet
from hybrid.convert import convert
from hybrid.infer import LoadedModel

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.exhaustive

TASKS = ["reading", "goes_on"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, prose: Path) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"), prose)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet(verbose=False):
        yield


def ours(model: LoadedModel, tasks: Path, names: list[str], **protocol: Any) -> dict[str, Any]:
    """Results of `hybrid eval`, without BOS, which the harness's tokenizer for servers never adds."""
    items = loaded(found(names, [tasks]), names)
    return evaluate(HarnessModel(model, add_bos=False), items, Protocol(log_samples=True, **protocol))


def theirs(server: Server, tasks: Path, names: list[str], kind: str, route: str, **more: Any) -> dict[str, Any]:
    """Results of the harness's own model of that kind."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    url, n_ctx = server.url + route, server.model.n_ctx
    fixed = {"model": "tiny", "base_url": url, "max_length": n_ctx + 1, "timeout": WAIT, "max_retries": 1}
    together = {"num_concurrent": more.pop("num_concurrent", 1), "batch_size": more.pop("batch_size", 1)}
    results: dict[str, Any] = simple_evaluate(
        model=kind,
        model_args=fixed | together,
        tasks=names,
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        **more,
    )
    return results


def answers(results: dict[str, Any], task: str) -> list[Any]:
    """The responses to all requests of a task."""
    return [answer for sample in results["samples"][task] for (answer,) in sample["resps"]]


@pytest.mark.parametrize(
    ("name", "together"),
    [
        pytest.param("mamba-bf16", {}, marks=pytest.mark.matrix),
        ("jamba-dense", {"num_concurrent": 4}),
        pytest.param("llama-unigram-bin", {"batch_size": 3}, marks=pytest.mark.matrix),
    ],
)
def test_local_completions_has_the_same_scores(
    name: str, together: dict[str, int], tasks: Path, data_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    convert(data_dir / "checkpoints" / name, path, outtype="f32")
    with LoadedModel.load(path, n_ctx=768, n_seq_max=8, checkpoint_budget=32 << 20) as model, serving(model) as server:
        want = ours(model, tasks, TASKS, limit=4, num_fewshot=1)
        got = theirs(server, tasks, TASKS, "local-completions", "/v1/completions", limit=4, num_fewshot=1, **together)
    assert [ln_p for ln_p, _ in answers(got, "halves")] == pytest.approx(
        [ln_p for ln_p, _ in answers(want, "halves")], rel=1e-9
    )
    assert [greedy for _, greedy in answers(got, "halves")] == [greedy for _, greedy in answers(want, "halves")]
    assert answers(got, "pages") == pytest.approx(answers(want, "pages"), rel=1e-9)
    assert answers(got, "goes_on") == answers(want, "goes_on") and all(answers(want, "goes_on"))
    for task, metrics in want["results"].items():
        numbers = {key: value for key, value in metrics.items() if isinstance(value, float)}
        assert {key: got["results"][task][key] for key in numbers} == pytest.approx(numbers, abs=1e-6, rel=1e-6)


def test_what_the_model_says_itself_is_greedy_for_both(files: dict[str, Path], tasks: Path) -> None:
    """A case in which the greedy flag, which tasks such as LAMBADA count, is true."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=8) as model, serving(model) as server:
        lm = HarnessModel(model, add_bos=False)
        text = "State space models keep"
        settings = {"max_gen_toks": 5, "until": []}
        (said,) = lm.generate_until([Instance("generate_until", {}, (text, settings), 0)])
        asked = [Instance("loglikelihood", {}, (text, end), 0) for end in (said, said + " no", " no")]
        client = LocalCompletionsAPI(model="tiny", base_url=server.url + "/v1/completions", max_length=257)
        want, got = lm.loglikelihood(asked), client.loglikelihood(asked, disable_tqdm=True)
    assert [greedy for _, greedy in want] == [greedy for _, greedy in got] == [True, False, False]
    assert [ln_p for ln_p, _ in got] == pytest.approx([ln_p for ln_p, _ in want], rel=1e-9)


def test_local_chat_completions_has_the_same_answers(
    files: dict[str, Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    path = templated(cli, files["q8_0"], "LFM2-8B-A1B", tmp_path)
    protocol = {"limit": 3, "num_fewshot": 0, "apply_chat_template": True, "system_instruction": "Be brief."}
    with LoadedModel.load(path, n_ctx=512, n_seq_max=8, checkpoint_budget=32 << 20) as model, serving(model) as server:
        turns = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "The answer is"}]
        begun = HarnessModel(model).apply_chat_template(turns, add_generation_prompt=False)
        assert begun.endswith("assistant\nThe answer is"), "what an answer is to begin with (gen_prefix)"
        want = ours(model, tasks, ["goes_on"], **protocol)
        got = theirs(server, tasks, ["goes_on"], "local-chat-completions", "/v1/chat/completions", **protocol)
        (context, _), *_ = want["samples"]["goes_on"][0]["arguments"]
        assert "Be brief." in context
    assert answers(got, "goes_on") == answers(want, "goes_on") and all(answers(want, "goes_on"))
