"""Options for loading a model: fields, their checks, and what a config file may contain."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from converted_models import converted
from numa_kernel import NODES, needs_kernel, policy_at, thread_policy

from hybrid.convert import convert
from hybrid.infer import LoadedModel, LoadOptions
from hybrid.infer.engine.encoder import Encoder
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.kernels.attention.kv import KV_TYPES
from hybrid.infer.loading.options import DEFAULT_KV_TYPE, KVTypeName, LoadFields, Precision, StateTypeName, merged
from hybrid.infer.loading.read_ahead import ReadAhead
from hybrid.infer.memory.mapped import mapped_zeros
from hybrid.infer.memory.parking import ParkedType
from hybrid.infer.program.threads import Pool
from hybrid.quant.ggml.cpus import as_list
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.numa import INTERLEAVE, Policy, policy

WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"n_ctx": -1},
        "n_ctx = -1, n_seq_max = 1, n_ubatch = 512, n_threads = 0: the context and the threads must not be",
    ),
    ({"n_seq_max": 0}, "n_seq_max = 0, .* the others at least 1"),
    ({"n_ubatch": 0}, "n_ubatch = 0, "),
    ({"n_threads": -2}, "n_threads = -2: "),
    ({"n_ctx": 2**31}, "n_ctx = 2147483648, .* a context has at most 2147483647 tokens"),
    ({"n_ubatch": 2**17}, "an ubatch 65536; at most"),
    ({"n_threads": 513}, "at most 512 threads"),
    ({"n_ctx": "4096"}, "n_ctx = '4096': expected an integer"),
    ({"n_ctx": 1.5}, r"n_ctx = 1\.5: expected an integer"),
    ({"n_threads": True}, "n_threads = True: expected an integer"),
    ({"checkpoint_budget": -1}, "checkpoint_budget = -1: it is a number of bytes, 0 or more"),
    ({"beside": -1}, "beside = -1: it is a number of bytes, 0 or more"),
    ({"cpus": [0, -1]}, "cpus: there is no processor -1"),
    ({"cpus": [2, 3, 2]}, "cpus: processor 2 is named twice"),
    ({"cpus": 3}, "cpus = 3: expected a list of processors"),
    ({"cpus": [0, "1"]}, "cpus = '1': expected an integer"),
    (
        {"cpus": [0, 1], "n_threads": 3},
        r"n_threads = 3: more than the processors in cpus \(2\), and each",
    ),
    ({"numa": "local"}, "numa = 'local': expected one of interleave"),
    ({"precision": "high"}, "precision = 'high': expected one of fast, exact"),
    ({"kv_type": "f12"}, "kv_type = 'f12': keys and values are kept in one of f32, f16, bf16, q8_0"),
    ({"kv_type": ["f16"]}, r"kv_type = \['f16'\]: keys"),
    ({"checkpoint_type": "q4"}, "checkpoint_type = 'q4': recurrent states are kept in one of f32, f16, q8_0"),
    ({"lora": "a.gguf"}, "lora = 'a.gguf': expected a list of files, each alone or with its scale"),
    ({"lora": 3}, "lora = 3: expected a list"),
    ({"lora": [3]}, "lora: 3 is neither the file of an adapter nor a file and its scale"),
    ({"lora": [["a.gguf", "1"]]}, r"lora: \['a\.gguf', '1'\] is neither"),
    ({"lora": [["a.gguf", True]]}, r"lora: \['a\.gguf', True\] is neither"),
    ({"lora": [["a.gguf", 1, 2]]}, "is neither"),
    ({"lora": [{"path": "a.gguf\n"}]}, r"lora: \{'path': 'a.gguf\\n'\} is neither"),
]


@pytest.mark.parametrize(("given", "says"), WRONG)
def test_what_is_wrong_is_named(given: dict[str, Any], says: str) -> None:
    """As a keyword of the library, and in a config, whose name comes first."""
    with pytest.raises(UsageError, match=says) as caught:
        LoadOptions(**given)
    with pytest.raises(UsageError) as in_file:
        LoadOptions.from_json(given, "m.json")
    assert str(in_file.value) == f"m.json: {caught.value}" and "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [LoadedModel.load, Encoder.load, Embedder])
def test_whatever_loads_checks_before_it_looks_for_the_file(load: Any, tmp_path: Path) -> None:
    for options in ({"kv_type": "f12"}, {"precision": "high"}, {"n_threads": 513}):
        with pytest.raises(UsageError, match=next(iter(options))):
            load(tmp_path / "none.gguf", **options)
    with pytest.raises(TypeError, match="n_contxt"):
        load(tmp_path / "none.gguf", n_contxt=1)


def test_config() -> None:
    text = """{"n_ctx": 4096, "n_threads": 3, "precision": "exact", "checkpoint_budget": "1.5GiB", "kv_type": null,
               "cpus": "0-2,5", "numa": "interleave", "lora": ["a.gguf", ["b:c.gguf", 2]]}"""
    options = LoadOptions.from_json(json.loads(text), "m.json")
    assert options == LoadOptions(
        n_ctx=4096,
        n_threads=3,
        precision="exact",
        checkpoint_budget=3 << 29,
        cpus=(0, 1, 2, 5),
        numa="interleave",
        lora=(("a.gguf", 1.0), ("b:c.gguf", 2.0)),
    )
    assert LoadOptions.from_json({}, "m.json") == LoadOptions()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], r"^m\.json: expected an object with fields such as n_ctx, found \[\]\.$"),
        (
            {"n_contxt": 1},
            r"^m\.json: unknown setting 'n_contxt'\. There are: n_ctx, n_seq_max, .*, cpus, numa\.$",
        ),
        ({"checkpoint_budget": "1P"}, r"^m\.json: checkpoint_budget 1P: expected a size like 900M, 2G or 1\.5GiB"),
        ({1: 2}, r"^m\.json: unknown setting 1\."),
    ],
)
def test_what_a_config_may_not_say(values: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        LoadOptions.from_json(values, "m.json")


def test_there_and_back() -> None:
    adapters: Any = [(Path("x") / "a.gguf", np.float32(0.5)), "b.gguf"]
    number: Any = np.int32(77)
    options = LoadOptions(number, 2, 64, 1, "exact", "q8_0", 1 << 40, "f16", adapters, True, 1 << 20, [3], "interleave")
    assert all(getattr(options, f.name) != f.default for f in fields(options)), "every field is tried"
    assert LoadOptions.from_json(json.loads(json.dumps(asdict(options))), "m.json") == options
    assert hash(options) == hash(replace(options))


def test_fields_count_instead_of_those_of_the_options() -> None:
    base = LoadOptions(n_ctx=77, precision="exact")
    assert merged(base, {"n_ctx": 5}) == LoadOptions(n_ctx=5, precision="exact")
    assert merged(None, {"n_ctx": 5}) == LoadOptions(n_ctx=5)
    assert base.n_ctx == 77


def test_as_many_threads_as_processors() -> None:
    assert LoadOptions(cpus=(4, 2, 9)).n_threads == 3
    assert LoadOptions(cpus=(4, 2, 9), n_threads=2).n_threads == 2
    assert merged(LoadOptions(cpus=(4, 2)), {"n_threads": 0}).n_threads == 2


@pytest.mark.parametrize("load", [LoadedModel.load, Encoder.load])
def test_processors_are_checked_before_a_file_is_read(load: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cpus: "):  # Linux: no such processor; macOS: no call
        load(tmp_path / "none.gguf", cpus=[65535])


@pytest.mark.exhaustive
@needs_kernel
def test_memory_is_spread_while_a_model_is_loaded_and_run(
    bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also memory of files that other threads read; the caller's policy is restored every time."""
    monkeypatch.setattr("hybrid.infer.memory.recurrent.mapped_zeros", mapped_zeros)  # not the one full of NaN
    path, ahead, during = convert(bundled, tmp_path / "m.gguf").output, [], []
    read = ReadAhead._run
    monkeypatch.setattr(ReadAhead, "_run", lambda self: (ahead.append(policy()), read(self)))
    run = Pool._run
    monkeypatch.setattr(Pool, "_run", lambda self, *given: (during.append(policy()), run(self, *given)))
    before, wanted = policy(), Policy(INTERLEAVE, NODES)
    for numa, policies in (("interleave", wanted), (None, before)):
        ahead.clear()
        during.clear()
        monkeypatch.setattr("hybrid.infer.model.nodes_to_spread_over", lambda asked: (NODES if asked else (), ""))
        with LoadedModel.load(path, n_threads=2, n_ctx=64, numa=numa) as model:
            assert policy() == before
            model.sequence().prefill([1, 2, 3])
            assert policy() == before and set(during) == {policies}
            model.engine._read_ahead.wait()
            assert ahead == [policies]
            workers = [thread_policy(thread.native_id) for thread in model.engine.pool._threads]
            assert workers == [f"interleave:{as_list(NODES)}" if numa else "default"]
            states = next(iter(model.memory.recurrent.arrays()))
            assert policy_at(states.ctypes.data) == workers[0], "also where the caller writes, as in `fill`"
            assert model.numa == numa and model.numa_note.startswith("numa: memory is spread over") == bool(numa)


@pytest.mark.parametrize("load", [LoadedModel.load, Encoder.load])
def test_a_system_without_policies_is_an_error_before_a_file_is_read(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(UsageError, match="numa: darwin has no calls"):
        load(tmp_path / "none.gguf", numa="interleave")
    with pytest.raises(UsageError, match="does not exist"):
        load(tmp_path / "none.gguf")


def test_one_node_is_a_note_and_nothing_else(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = converted(bundled)
    monkeypatch.setattr("hybrid.infer.model.nodes_to_spread_over", lambda asked: ((), "one" if asked else ""))
    monkeypatch.setattr("hybrid.infer.model.spread", lambda *given: pytest.fail("moves pages"))
    with Embedder(path, n_ctx=64, n_threads=1, numa="interleave") as embedder:
        assert embedder.numa_note == "", "no model yet"
        embedder.embed(["a text"])
        assert embedder.numa_note == "one"
    with LoadedModel.load(path, n_ctx=64, n_threads=1) as model:
        assert model.numa_note == "" and model.numa is None


def test_a_model_is_loaded_as_the_options_say(bundled: Path) -> None:
    path = converted(bundled)
    options = LoadOptions(n_ctx=48, n_seq_max=3, n_threads=1, precision="exact", checkpoint_budget=1 << 20)
    with LoadedModel.load(path, options, n_seq_max=2) as model:
        assert (model.n_ctx, model.memory.n_seq_max, model.n_threads, model.precision) == (48, 2, 1, "exact")
        assert model.kv_type == "f32" and model.cache is not None and model.cache.budget == 1 << 20
    with Embedder(path, options) as embedder:
        embedder.embed(["a text"])
        assert embedder.n_ctx == 48 and embedder._model is not None and embedder._model.precision == "exact"


def test_names_that_type_checkers_see_are_the_fields() -> None:
    assert list(LoadFields.__annotations__) == [f.name for f in fields(LoadOptions)]
    assert get_args(KVTypeName) == tuple(KV_TYPES)
    assert get_args(StateTypeName) == get_args(ParkedType)
    assert LoadOptions(kv_type="q4_0/q4_0").kv_type == "q4_0"
    assert set(DEFAULT_KV_TYPE) == set(get_args(Precision))


def test_defaults_that_depend_on_others() -> None:
    assert LoadOptions().kv_type_used == "f16" and LoadOptions(precision="exact").kv_type_used == "f32"
    assert LoadOptions(precision="exact", kv_type="q8_0").kv_type_used == "q8_0"
