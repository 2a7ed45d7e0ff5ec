"""Options that load a model: declared once, equal in all commands, and the resulting settings."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest

from hybrid.cli import main
from hybrid.cli.options import loading_options
from hybrid.cli.options.loading_options import (
    KV_TYPE_HELP,
    Checkpoints,
    Numa,
    Pinning,
    Precision,
    StateTypes,
    ThreadOptions,
    chunks_together,
    load_options,
)
from hybrid.infer.kernels.attention.kv import KV_TYPES
from hybrid.infer.loading.options import LoadOptions, NumaName, StateTypeName
from hybrid.quant.ggml.errors import UsageError

FLAGS = {"-c", "-b", "-t", "--cpus", "--numa", "--exact", "--kv-type", "--lora"}
LISTS = {("bench", "-t"), ("bench", "-b"), ("bench", "--kv-type")}  # several values to measure with
OTHER = {("inspect", "-c"), ("gguf", "-c"), ("convert", "--lora")}  # load nothing
OTHER |= {("eval", "-b")}  # texts, as lm_eval counts them
OTHER |= {("serve", "--lora")}  # with names


def _options() -> Iterator[tuple[str, Any]]:
    """(command, typer's record) of every option."""
    for name in main.COMMANDS:
        module = import_module(f"hybrid.cli.commands.{name}")
        for function in {name: getattr(module, name), **getattr(module, "SUBCOMMANDS", {})}.values():
            for hint in inspect.get_annotations(function).values():
                if get_origin(hint) is Annotated:
                    yield name, get_args(hint)[1]


def test_an_option_reads_alike_in_every_command() -> None:
    """Same names, limits and help, except for what the context is counted for."""
    seen: dict[str, set[tuple[Any, ...]]] = {flag: set() for flag in FLAGS}
    for command, option in _options():
        # typer keeps the first name in the default's place
        names = (str(option.default), *(getattr(option, "param_decls", None) or ()))
        for flag in FLAGS.intersection(names):
            if (command, flag) not in LISTS | OTHER:
                of_its_own = () if flag == "-c" else (option.min, option.help)
                seen[flag].add((names, option.metavar, option.show_default, *of_its_own))
    assert {flag: len(kinds) for flag, kinds in seen.items()} == dict.fromkeys(FLAGS, 1), seen


def test_nothing_given_is_the_default_of_the_library() -> None:
    assert load_options() == LoadOptions()


def test_what_is_given() -> None:
    options = load_options(
        ThreadOptions(2, Pinning("3,0-1", Numa.INTERLEAVE)),
        Precision(exact=True, kv_type="q8_0"),
        Checkpoints("1K", StateTypes.F16),
        n_ctx=7,
        lora=["a.gguf:0.5", "b.gguf"],
    )
    assert options == LoadOptions(
        n_ctx=7,
        n_threads=2,
        cpus=(3, 0, 1),
        numa="interleave",
        precision="exact",
        kv_type="q8_0",
        lora=(("a.gguf", 0.5), ("b.gguf", 1.0)),
        checkpoint_budget=1000,
        checkpoint_type="f16",
    )
    with pytest.raises(UsageError, match=r"^--checkpoint-budget big: expected a size"):
        load_options(checkpoints=Checkpoints("big"))
    with pytest.raises(UsageError, match=r"^--cpus 1,,2: '' is none"):
        load_options(ThreadOptions(pinning=Pinning("1,,2")))


def test_processors_and_memory_here_are_for_work_here() -> None:
    Pinning("0", Numa.INTERLEAVE).check(None)
    Pinning().check("local:2")
    with pytest.raises(UsageError, match=r"^--cpus names processors of this machine, --cluster works on others\."):
        Pinning("0").check("local:2")
    with pytest.raises(UsageError, match=r"^--numa is about memory of this machine, --cluster works on others\. Leave"):
        Pinning(numa=Numa.INTERLEAVE).check("local:2")


def test_every_option_has_its_field() -> None:
    """Commands themselves set the fields that have no option."""
    groups = (ThreadOptions, Pinning, Precision, Checkpoints)
    taken = {"n_ctx", "lora", *(f.name for group in groups for f in fields(group))} - {"pinning"}
    named = {"threads": "n_threads", "exact": "precision"}
    assert {f.name for f in fields(LoadOptions)} - {named.get(name, name) for name in taken} == {
        "n_seq_max",
        "n_ubatch",
        "beside",
        "activated",
    }


def test_kv_types_are_those_of_the_library() -> None:
    assert all(kind in KV_TYPE_HELP for kind in KV_TYPES)
    assert [kind.value for kind in StateTypes] == list(get_args(StateTypeName))


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, None),
        ({"kv_type": "q4_0"}, "q4_0"),
        ({"kv_type": "q8_0/q4_0"}, "q8_0/q4_0"),
        ({"k_type": "q8_0"}, "q8_0/f16"),
        ({"v_type": "q4_0", "exact": True}, "f32/q4_0"),
        ({"kv_type": "q5_0", "v_type": "iq4_nl"}, "q5_0/iq4_nl"),
        ({"kv_type": "q8_0/q4_0", "k_type": "bf16"}, "bf16/q4_0"),
        ({"k_type": "q4_1", "v_type": "q4_1"}, "q4_1/q4_1"),
    ],
)
def test_types_of_keys_and_of_values(given: dict[str, Any], used: str | None) -> None:
    assert Precision(**given).keys_values == used
    assert load_options(precision=Precision(**given)).kv_type == ("q4_1" if used == "q4_1/q4_1" else used)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kv_type": "q3"}, "--kv-type q3: keys and values are kept in one of f32, f16, bf16"),
        ({"k_type": "q8"}, "--k-type q8: keys and values"),
        ({"v_type": "q8_0/q4_0"}, "--v-type q8_0/q4_0: expected one type. Use --kv-type q8_0/q4_0."),
        ({"kv_type": "f16/f16/f16"}, "--kv-type f16/f16/f16: keys"),
    ],
)
def test_types_that_do_not_exist(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_options(precision=Precision(**given))
    assert str(caught.value).startswith(message)


def test_ways_to_use_nodes_are_those_of_the_library() -> None:
    assert [way.value for way in Numa] == list(get_args(NumaName))


@pytest.mark.parametrize(("n_ctx", "n_batch", "n"), [(512, 2048, 4), (512, 2047, 3), (4096, 2048, 1), (8, 8, 1)])
def test_chunks_side_by_side(n_ctx: int, n_batch: int, n: int) -> None:
    assert chunks_together(n_ctx, n_batch) == n


def test_only_here_are_they_declared() -> None:
    folder = Path(loading_options.__file__).parent
    elsewhere = [
        path.name
        for path in folder.rglob("*.py")
        if path.name not in ("loading_options.py", "bench.py", "inspect.py")
        for name in ('"--threads"', '"--ctx"', '"--exact"', '"--kv-type",', '"--lora", metavar="FILE[')
        if name in path.read_text(encoding="utf-8")
    ]
    assert elsewhere == []
