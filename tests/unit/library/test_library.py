"""The package `hybrid`: ten documented names, each loaded on first use."""

import inspect
import subprocess
import sys
import typing

import pytest

import hybrid
from hybrid import settings

IMPORTED = "print([m for m in sys.modules if m.startswith('hybrid') or m in ('numpy', 'numba', 'rich', 'pydantic')])"


def test_ten_names() -> None:
    assert len(hybrid.__all__) == 10 and hybrid.__all__ == sorted(hybrid.__all__)
    assert set(hybrid.__all__) <= set(dir(hybrid))
    for name in hybrid.__all__:
        value = getattr(hybrid, name)
        assert value.__doc__ and not value.__doc__.startswith(f"{name}("), name
    with pytest.raises(AttributeError, match="module 'hybrid' has no attribute 'nothing'"):
        _ = hybrid.nothing
    assert hybrid.__version__[0].isdigit()


def test_everything_public_is_typed_and_documented() -> None:
    for kind in (hybrid.Model, hybrid.Chat, hybrid.Answer, hybrid.Timings, hybrid.Score):
        for name, member in vars(kind).items():
            if name.startswith("_"):
                continue
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function):
                assert function.__doc__, f"{kind.__name__}.{name}"
                missing = [p for p in inspect.signature(function).parameters if p not in function.__annotations__]
                assert missing in ([], ["self"]) and "return" in function.__annotations__, f"{kind.__name__}.{name}"


def test_importing_loads_nothing() -> None:
    code = f"import sys, hybrid; {IMPORTED}"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "['hybrid']\n"


def test_errors_are_there_without_a_model() -> None:
    code = f"import sys\nfrom hybrid import HybridError, ToolCall\nassert 'numba' not in sys.modules; {IMPORTED}"
    assert "hybrid.model" not in subprocess.check_output([sys.executable, "-c", code], text=True)


def test_settings_name_all_samplers() -> None:
    """A new sampler also needs a keyword."""
    from dataclasses import fields

    from hybrid.infer.answers.sampling import SamplingParams

    theirs = {"temperature" if field.name == "temp" else field.name for field in fields(SamplingParams)}
    own = {"tokens", "max_tokens", "stop", "logprobs", "schema", "regex", "choices", "grammar", "lora"}
    assert set(typing.get_type_hints(settings.Settings)) == theirs | own
