"""`hybrid eval`: the tasks of lm-evaluation-harness, from files, without a network."""

import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hellaswag_tasks
import numpy as np
import pytest
from end_to_end.outcomes import Cli, failed, ok
from end_to_end.templated import templated
from harness_tasks import write_tasks

from hybrid.cli.main import run
from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.evaluate.shared import walk

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.exhaustive

NAMES = {"mamba": "mamba-bf16", "jamba": "jamba-dense", "llama": "llama-unigram-bin"}
KINDS = ["jamba", *(pytest.param(kind, marks=pytest.mark.matrix) for kind in ("mamba", "llama"))]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, prose: Path) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"), prose, relative=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Callable[[str], Path]:
    """Models by kind: recurrent, hybrid with attention, attention only."""
    folder = tmp_path_factory.mktemp("models")

    def make(kind: str) -> Path:
        path = folder / f"{kind}.gguf"
        if not path.exists():
            convert(data_dir / "checkpoints" / NAMES[kind], path, outtype="f32")
        return path

    return make


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that nothing resolves a name or connects."""
    tried: list[object] = []

    def refused(*args: object, **_: object) -> Any:
        tried.append(args)
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    yield
    assert not tried


def ln_p(model: LoadedModel, context: str, continuation: str) -> tuple[float, bool]:
    """Log probability of one continuation, with its leading whitespace, and whether it is the greedy one: float64, from
    the logits of the whole text."""
    begins = model.tokenizer.bos is not None and context.startswith(model.tokenizer.piece(model.tokenizer.bos).decode())
    encode = lambda text: model.tokenizer.encode(text, add_special=not begins, parse_special=True)
    ids, first = encode(context + continuation), len(encode(context.rstrip()))
    seq = model.sequence()
    x = seq.logits_of(ids[:-1])[first - 1 :].astype(np.float64)
    seq.close(remember=False)
    value = x[np.arange(len(x)), ids[first:]] - np.log(np.exp(x - x.max()).sum(1)) - x.max()
    return float(value.sum()), x.argmax(1).tolist() == ids[first:]


@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_scored_as_one_by_one(
    kind: str, models: Callable[[str], Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "results.json"
    told = cli(
        "eval", models(kind), "--tasks", "halves", "--tasks-dir", tasks, "--num_fewshot", 2, "--limit", 5,
        "--log_samples", "-o", file, "-c", 512,
    )  # fmt: skip
    out = ok(told).splitlines()
    results = json.loads(file.read_text())
    assert set(results) >= {"results", "configs", "versions", "n-shot", "samples", "config", "higher_is_better"}
    assert results["n-shot"] == {"halves": 2} and results["versions"] == {"halves": 1.0}
    assert results["config"]["model_dtype"] == "F32" and results["config"]["limit"] == 5
    assert results["n-samples"] == {"halves": {"original": 12, "effective": 5}}
    samples = results["samples"]["halves"]
    assert len(samples) == 5
    right = 0
    with LoadedModel.load(models(kind), n_ctx=512) as model:
        for sample in samples:
            scores = []
            for (context, ending), (got,) in zip(sample["arguments"], sample["resps"], strict=True):
                assert context.count("Reading: ") == 3, "two examples before the question"
                want = ln_p(model, context, ending)
                assert got == pytest.approx(want, rel=1e-12)
                scores.append(want[0] / len(ending.strip()))
            right += int(np.argmax(scores)) == sample["doc"]["gold"]
    assert results["results"]["halves"]["acc_norm,none"] == right / 5
    assert out[0].split() == ["task", "version", "filter", "n-shot", "metric", "value", "stderr"]
    assert out[2].split()[:6] == ["halves", "1.0", "none", "2", "acc_norm", f"{right / 5:.4f}"]
    processed, _, n_tokens = told[2].splitlines()[-1].split()[:3]
    assert int(processed) < int(n_tokens) / 2, "examples and contexts are read once"


@pytest.mark.parametrize("kind", KINDS)
def test_hellaswag_is_scored_as_perplexity_scores_it(
    kind: str, models: Callable[[str], Path], prose: Path, cli: Cli, tmp_path: Path
) -> None:
    folder, file = tmp_path / "tasks", tmp_path / "tasks.txt"
    with LoadedModel.load(models(kind), n_ctx=128) as model:
        tasks = hellaswag_tasks.write_folder(folder, hellaswag_tasks.from_prose(prose, 40), model.tokenizer)
    assert len(tasks) > 30
    file.write_text(hellaswag_tasks.as_lines(tasks))
    want = json.loads(ok(cli("perplexity", models(kind), "-f", file, "--hellaswag", "-c", 128, "--json")))
    name = hellaswag_tasks.NAME
    told = ok(cli("eval", models(kind), "--tasks", name, "--tasks-dir", folder, "-c", 128, "--json"))
    got = json.loads(told)
    assert got["n-samples"][name]["effective"] == want["n_tasks"] == len(tasks)
    assert got["results"][name]["acc_norm,none"] == pytest.approx(want["acc_norm"], abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_answers_are_those_of_each_alone(
    kind: str, models: Callable[[str], Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    """Rolling windows, as no text fits the context; answers up to a stop text."""
    file = tmp_path / "results.json"
    ok(
        cli(
            "eval",
            models(kind),
            "--tasks",
            "pages,goes_on",
            "--tasks-dir",
            tasks,
            "--log_samples",
            "-o",
            file,
            "-c",
            64,
            "--gen-kwargs",
            'until=["e"],max_gen_toks=20',
        )
    )
    samples = json.loads(file.read_text())["samples"]
    with LoadedModel.load(models(kind), n_ctx=64) as model:
        bos = model.tokenizer.bos
        for sample in samples["pages"]:
            ids = model.tokenizer.encode(sample["doc"]["text"], add_special=False, parse_special=True)
            text, want = [bos, *ids], 0.0
            for begin in range(0, len(ids), 64):
                end = min(begin + 64, len(ids))
                seq = model.sequence()
                x = seq.logits_of(text[max(0, end - 64) : end])[begin - end :].astype(np.float64)
                seq.close(remember=False)
                want += (x[np.arange(len(x)), ids[begin:end]] - np.log(np.exp(x).sum(1))).sum()
            ((got,),) = sample["resps"]
            assert got == pytest.approx(want, rel=1e-12)
        assert len(samples["pages"]) > 2 and max(len(s["doc"]["text"]) for s in samples["pages"]) > 500
        for sample in samples["goes_on"]:
            ((context, settings),), ((got,),) = sample["arguments"], sample["resps"]
            assert settings["until"] == ["e"] and settings["max_gen_toks"] == 20
            ids = model.tokenizer.encode(context, parse_special=True)[-44:]
            greedy = Sampler(SamplingParams(temp=0), model.n_vocab)
            seq = model.sequence()
            said = "".join(piece.text for piece in generate(seq, ids, greedy, max_tokens=20, stop=["e"]))
            seq.close()
            assert got == said and "e" not in got


def test_samples_depend_on_the_seed_and_on_nothing_beside_them(
    models: Callable[[str], Path], tasks: Path, cli: Cli
) -> None:
    def said(*more: object) -> list[str]:
        told = cli(
            "eval",
            models("mamba"),
            "--tasks",
            "goes_on",
            "--tasks-dir",
            tasks,
            "--log_samples",
            "--json",
            "--gen_kwargs",
            "do_sample=true,temperature=0.8,top_k=0",
            *more,
        )
        return [sample["resps"][0][0] for sample in json.loads(ok(told))["samples"]["goes_on"]]

    six = said()
    assert len(set(six)) == 6 and said("--limit", 3, "-b", 1) == six[:3]
    other = said("--seed", 7)
    assert all(a != b for a, b in zip(six, other, strict=True)) and said("--seed", 7) == other


def test_chats_are_asked_in_the_template(
    files: dict[str, Path], models: Callable[[str], Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    path = templated(cli, files["q8_0"], "LFM2-8B-A1B", tmp_path)
    asked = ("--apply_chat_template", "--system_instruction", "Be brief.", "--num-fewshot", 1, "--limit", 2)
    run_ = ("eval", path, "--tasks", "halves,goes_on", "--tasks-dir", tasks, "--log_samples", "--json", "-c", 1024)
    results = json.loads(ok(cli(*run_, *asked)))
    assert "im_start" in results["chat_template"] and results["system_instruction"] == "Be brief."
    with LoadedModel.load(path, n_ctx=1024) as model:
        template = model.chat_template
        assert template is not None
        for sample in results["samples"]["halves"]:
            for (context, ending), (got,) in zip(sample["arguments"], sample["resps"], strict=True):
                before = context.split("Reading: ")[1].split("<|im_end|>")[0]
                example = context.split("<|im_start|>assistant\n")[1].split("<|im_end|>")[0]
                turns = [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Reading: " + before},
                    {"role": "assistant", "content": example},
                    {"role": "user", "content": sample["doc"]["context"]},
                ]
                assert context == template.render(turns)
                assert got == pytest.approx(ln_p(model, context, ending), rel=1e-12)
    one = json.loads(ok(cli(*run_, *asked, "--no-fewshot-as-multiturn")))
    context = one["samples"]["halves"][0]["arguments"][0][0]
    assert context.count("<|im_start|>user") == 1 and context.count("Reading: ") == 2
    told = cli("eval", models("mamba"), "--tasks", "halves", "--tasks-dir", tasks, "--apply-chat-template")
    assert "mamba.gguf has no chat template. Leave out --apply-chat-template." in failed(told, 2)


def test_a_system_message_that_the_template_refuses_is_left_out(
    files: dict[str, Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    """As in the harness's models; a note says so."""
    path = tmp_path / "model.gguf"
    shutil.copyfile(files["q8_0"], path)
    source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    ok(cli("gguf", "set", path, "tokenizer.chat_template", source + "[{{ m.role }}] {{ m.content }}\n{% endfor %}"))
    told = cli(
        "eval",
        path,
        "--tasks",
        "halves",
        "--tasks-dir",
        tasks,
        "--limit",
        2,
        "--apply-chat-template",
        "--system-instruction",
        "Be brief.",
        "--log-samples",
        "--json",
    )
    context = json.loads(ok(told))["samples"]["halves"][0]["arguments"][0][0]
    assert context.startswith("[user] Reading: ") and "Be brief" not in context
    assert "2 prompts are without their system message: the chat template refuses it" in told[2]


def test_long_contexts_lose_their_beginning_and_that_is_said(
    models: Callable[[str], Path], tasks: Path, cli: Cli
) -> None:
    told = cli(
        "eval", models("llama"), "--tasks", "halves", "--tasks-dir", tasks, "--limit", 2, "--num-fewshot", 5, "-c", 128
    )
    assert ok(told) and "8 prompts did not fit the context of 128 and lost their beginning" in told[2]


def test_the_context_does_not_depend_on_the_memory_that_is_free(
    models: Callable[[str], Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "long.gguf"
    shutil.copyfile(models("llama"), path)
    for trained, want in ((1 << 17, 4096), (300, 300)):
        ok(cli("gguf", "set", path, "llama.context_length", trained))
        told = cli("eval", path, "--tasks", "halves", "--tasks-dir", tasks, "--limit", 1, "--json")
        assert json.loads(ok(told))["config"]["max_length"] == want
        assert "memory" not in told[2] and len(told[2].splitlines()) == 1


def test_results_do_not_depend_on_what_is_read_together(models: Callable[[str], Path], tasks: Path, cli: Cli) -> None:
    results = [
        json.loads(
            ok(
                cli(
                    "eval",
                    models("jamba"),
                    "--tasks",
                    "reading",
                    "--tasks-dir",
                    tasks,
                    "--log-samples",
                    "--json",
                    *more,
                )
            )
        )["samples"]
        for more in (("-b", 1), ("-b", 5), ("-t", 1))
    ]
    assert results[0] == results[1] == results[2], "to the bit"
    assert set(results[0]) == {"halves", "pages"}, "a group is its tasks"


def test_nothing_of_torch_is_imported_and_nothing_is_said(models: Callable[[str], Path], tasks: Path, cli: Cli) -> None:
    code, out, err = cli("eval", models("mamba"), "--tasks", "halves", "--tasks-dir", tasks, "--limit", 2, "--json")
    assert code == 0 and json.loads(out)["results"]["halves"]
    assert len(err.splitlines()) == 1 and "tokens processed" in err
    assert "torch" not in sys.modules and "transformers" not in sys.modules


REFUSED = {
    "": "Missing option '--tasks'",
    "--tasks halve {own}": "no task 'halve' among the harness's tasks or in {tasks}. Like it: halves.",
    "--tasks halves --tasks-dir {tasks}/none": "{tasks}/none is not a folder. Name one with task files",
    "--tasks {bad}/broken.yaml": "task {bad}/broken.yaml cannot be loaded: ",
    "--tasks lost --tasks-dir {bad}": "task lost cannot be loaded: Unable to find",
    "--tasks empty --tasks-dir {bad}": "task empty cannot be loaded: ",
    "--tasks wrong --tasks-dir {bad}": "task wrong cannot be loaded: 'nothing' is undefined (UndefinedError).",
    "--tasks later --tasks-dir {bad}": "the tasks cannot be evaluated: ",
    "--tasks halves {own} --gen-kwargs 5": "--gen-kwargs: expected KEY=VALUE, not '5'",
    "--tasks goes_on {own} --gen-kwargs beams=2": "generation_kwargs: beams = 2 is not known here.",
    "--tasks goes_on {own} -c 12": "answers of 12 tokens leave no room for a prompt in the context of 12. Use a larger",
    "--tasks halves {own} --seed 1,2": "--seed: expected a whole number, or four",
    "--tasks halves {own} --predict-only": "--predict-only needs --log-samples",
    "--tasks halves {own} --limit -1": "--limit",
    "--tasks halves {own} -o {tasks}": "{tasks} is not a regular file. Give another output path.",
    "--tasks halves {own} -o {tasks}/no/x.json": "{tasks}/no is not a folder. Make it first.",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(
    words: str,
    models: Callable[[str], Path],
    tasks: Path,
    tmp_path: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    monkeypatch.setattr("lm_eval.tasks.manager.__file__", str(bad / "manager.py"))  # its 14 000 tasks take seconds
    (bad / "data.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (bad / "nothing.jsonl").write_text("")
    (bad / "broken.yaml").write_text("task: broken\ndataset_path: [\n")
    head = "dataset_path: json\ntest_split: test\noutput_type: multiple_choice\ndoc_to_target: 0\n"
    for name, file, text in (
        ("lost", "missing", "{{a}}"),
        ("empty", "nothing", "{{a}}"),
        ("wrong", "data", "{{nothing.here}}"),
        ("later", "data", "{{1 // (a - 2)}}"),
    ):
        data = f"dataset_kwargs: {{data_files: {{test: {file}.jsonl}}}}\ndoc_to_choice: [x, y]\n"
        (bad / f"{name}.yaml").write_text(f"task: {name}\n{head}{data}doc_to_text: '{text}'\n")
    places = {"tasks": tasks, "bad": bad, "own": f"--tasks-dir {tasks}"}
    told = refused("eval", models("llama"), *words.format(**places).split(), code=2)
    assert REFUSED[words].format(**places) in told


def test_without_the_extra_it_says_how_to_get_it(
    models: Callable[[str], Path], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybrid.cli.commands.eval.find_spec", lambda name: None)
    told = refused("eval", models("llama"), "--tasks", "halves", code=2)
    assert told == "error: this needs lm-evaluation-harness. Use: pip install 'hybrid-lm[eval]'"


def test_faults_of_ours_keep_their_traceback(
    models: Callable[[str], Path], tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> Any:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr("hybrid.infer.evaluate.continuations.walk", fault)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        run(["eval", str(models("llama")), "--tasks", "halves", "--tasks-dir", str(tasks)])


def test_an_interrupt_leaves_the_old_results(
    models: Callable[[str], Path], tasks: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.json"
    file.write_text("old")
    passes = iter(range(1))

    def interrupted(*args: Any, **more: Any) -> Any:
        if next(passes, None) is None:
            raise KeyboardInterrupt
        return walk(*args, **more)

    monkeypatch.setattr("hybrid.infer.evaluate.continuations.walk", interrupted)
    told = cli("eval", models("llama"), "--tasks", "halves", "--tasks-dir", tasks, "-o", file, "-b", 8)
    assert told == (130, "", "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"] and file.read_text() == "old"


def test_generation_settings() -> None:
    from hybrid.cli.commands.eval import parsed, seeds

    assert parsed(['until=["a,b", "\\n"],temperature=0.5,do_sample=True', "x=none,top_k=5"]) == {
        "until": ["a,b", "\n"],
        "temperature": 0.5,
        "do_sample": True,
        "x": None,
        "top_k": 5,
    }
    assert parsed(["stop=end of it,flag=false"]) == {"stop": "end of it", "flag": False}
    assert seeds("7") == (7, 7, 7) and seeds("1,2,3,4") == (1, 2, 4) and seeds("1,2,3") == (1, 2, 1234)
