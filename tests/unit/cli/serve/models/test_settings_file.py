"""Tables of --models-file: what they set, and what they refuse."""

from pathlib import Path

import pytest

from hybrid.cli.options.guess_options import GuessOptions, Spec
from hybrid.cli.serve.models.settings_file import OPTIONS, ModelTable, read_tables, seconds_of
from hybrid.cli.serve.opening import ModelSetup
from hybrid.quant.ggml.errors import UsageError

SETUP = ModelSetup(Path("m.gguf"), GuessOptions())


def table(folder: Path, text: str) -> ModelTable:
    """The only table of a file with this text."""
    path = folder / "models.toml"
    path.write_text(text, "utf-8")
    (found,) = read_tables(path)
    return found


def test_what_a_table_sets(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    (tmp_path / "style.gguf").touch()
    found = table(
        tmp_path,
        """
        [coder]
        model = "a.gguf"
        aliases = ["claude-*", "gpt-4o"]
        pinned = true
        idle = "10m"
        ctx = 4096
        parallel = 2
        temp = 0.5
        samplers = "top_k;temperature"
        lora = ["style.gguf:0.5"]
        context-shift = true
        spec = "none"
        kv-type = "q8_0"
        """,
    )
    assert found.model == tmp_path / "a.gguf" and found.aliases == ("claude-*", "gpt-4o")
    assert found.pinned and found.idle == 600
    setup = found.applied(SETUP)
    assert setup.loading.n_ctx == 4096 and setup.capacity.parallel == 2 and setup.sampling.temp == 0.5
    assert setup.loading.lora == [f"{tmp_path / 'style.gguf'}:0.5"]
    assert setup.answers.context_shift and setup.guessing.spec is Spec.NONE
    assert setup.loading.options().kv_type_used == "q8_0"
    assert setup.loading.machine == SETUP.loading.machine and SETUP.loading.n_ctx == 0


def test_every_option_of_one_model_is_known() -> None:
    options = {"ctx", "kv-type", "lora", "temp", "dynatemp-exp", "n-predict", "think", "draft", "mmproj", "parallel"}
    assert options <= set(OPTIONS) and not {"port", "api-key-file", "state-dir", "alias"} & set(OPTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nctxx = 3", r"models\.toml \[a\]: ctxx is not known\. Did you mean ctx\?"),
        ("[a]\nzzzz = 3", "The options of `hybrid serve --help` are known"),
        ("[a]\nport = 3", "port is not known"),
        ("[a]\nctx = 'many'", r"\[a\]: ctx: Input should be a valid integer.*; found many"),
        ("[a]\nctx = -1", r"\[a\]: ctx: expected at least 0, found -1"),
        ("[a]\nparallel = 1000", r"\[a\]: parallel: expected at most 256, found 1000"),
        ("[a]\ntemp = [1]", r"\[a\]: temp: Input should be a valid number"),
        ("[a]\nkv-type = 'q9'", "q9"),
        ("[a]\nmodel = 3", r"\[a\]: model: expected a file, a folder or ORG/NAME"),
        ("[a]\naliases = 'b'", r"\[a\]: aliases: expected a list of names"),
        ("[a]\npinned = 1", r"\[a\]: pinned: expected true or false"),
        ("[a]\nidle = 'soon'", r"\[a\]: idle soon: expected a time like 90s, 10m or 2h"),
        ("a = 3", "a is outside a table. Begin with a line"),
        ("[a", "is no TOML"),
    ],
)
def test_refusals(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table(tmp_path, text).applied(SETUP)


def test_times() -> None:
    assert [seconds_of(text, "x") for text in ("90", "90s", "1.5m", "2h", 30)] == [90, 90, 90, 7200, 30]
    for wrong in ("", "1d", "-1", True, "1 m"):
        with pytest.raises(UsageError, match="expected a time"):
            seconds_of(wrong, "x")
