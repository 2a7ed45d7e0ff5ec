"""Options of adapters: named files, files alone, scales."""

from pathlib import Path

import pytest

from hybrid.cli.options.served_model import ServedLoading, named_file
from hybrid.cli.serve.adapters import AdapterName
from hybrid.quant.ggml.errors import UsageError


def test_adapters(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.gguf"
    odd.touch()
    loading = ServedLoading(lora=["sql=x/sql.gguf", "tone.gguf:0.5", "org/v1.2=a.gguf:2", str(odd), f"{odd}:3"])
    options = loading.options()
    assert options.lora == (
        ("x/sql.gguf", 1.0), ("tone.gguf", 0.5), ("a.gguf", 2.0), (str(odd), 1.0), (str(odd), 3.0),
    ) and options.activated  # fmt: skip
    named = [AdapterName("sql", 1.0, applied=False), AdapterName("", 0.5), AdapterName("org/v1.2", 2.0, applied=False)]
    assert loading.adapters() == [*named, AdapterName("", 1.0), AdapterName("", 3.0)]
    off = ServedLoading(lora=["tone.gguf:0.5"], lora_init_without_apply=True)
    assert off.adapters() == [AdapterName("", 0.5, applied=False)]
    assert not ServedLoading().options().activated and ServedLoading().adapters() == []


@pytest.mark.parametrize("text", ["a b=c.gguf", "=c.gguf", "a:b=c.gguf"])
def test_names_that_requests_cannot_say(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--lora .*: a name has letters, digits"):
        named_file(text)
