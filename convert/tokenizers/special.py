"""Special tokens, automatically added tokens, and the chat template, from tokenizer_config.json and other files beside
the vocabulary."""

from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import CheckpointError, TokenizerError, shown
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import ValueType
from hybrid.quant.ggml.utf8 import decoded

from ..checkpoint import Config, read_object
from ..checkpoint.config import kind_of
from .vocabulary import ID_KEYS, Vocabulary

_KINDS = tuple(kind for kind in ID_KEYS if kind != "eot")
_CODE_LLAMA_END = "▁<EOT>"  # ends the text of a gap
# Tokens that end a turn, where a template uses them and nothing else says so.
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end_of_turn|>", "<end_of_turn>", "<|eom|>", "<|eot|>", "<|end|>",
                "<turn|>")  # fmt: skip


def complete(vocabulary: Vocabulary, folder: Path, model_config: Config, n_vocab: int, *, goes_on: bool = True) -> None:
    """Adds the contents of a folder's other files to a vocabulary. `model_config`: the model's config.json.

    goes_on: the model continues texts, so no text may end with EOS.
    """
    config = read_config(folder, "tokenizer_config.json")
    _add_tokens(vocabulary, folder, config, n_vocab)
    id_of: dict[str, int] = {}
    for i, text in enumerate(vocabulary.tokens):
        id_of.setdefault(text, i)
    names = _special_texts(folder, config)
    ids = {kind: id_of[text] for kind, text in names.items() if text in id_of}
    vocabulary.ids = {**vocabulary.ids, **stated_ids(model_config, n_vocab), **ids, **vocabulary.fixed}
    for kind in ("bos", "eos", "sep"):
        value = config.boolean(f"add_{kind}_token", default=None)
        if value is not None:
            vocabulary.flags[f"add_{kind}_token"] = value
    _read_post_processor(vocabulary, folder, names, id_of, goes_on)
    if vocabulary.model == "gemma4" and not vocabulary.flags.get("add_bos_token"):
        _settle_bos(vocabulary, id_of)
    if vocabulary.model == "llama" and config.get("add_prefix_space") is False:
        key = "tokenizer.ggml.add_space_prefix"
        vocabulary.more = [pair for pair in vocabulary.more if pair[0] != key] + [(key, False, ValueType.BOOL)]
    if goes_on:
        if vocabulary.flags.get("add_eos_token"):
            vocabulary.notes.append(
                "the tokenizer ends texts with EOS; add_eos_token is written false, as prompts go on"
            )
        if vocabulary.model == "t5" or "add_eos_token" in vocabulary.flags:  # readers assume true for t5
            vocabulary.flags["add_eos_token"] = False
    vocabulary.chat_templates = chat_templates(folder, config)
    _find_end_of_turn(vocabulary, folder, id_of, n_vocab)


def _settle_bos(vocabulary: Vocabulary, id_of: dict[str, int]) -> None:
    """Handles a tokenizer of kind gemma4 that adds no BOS, although readers of this kind always do."""
    if "<|turn>" in id_of:
        # Gemma 4's own files leave it to the chat template, but its base models need one (llama.cpp PR #21500).
        vocabulary.flags["add_bos_token"] = True
        vocabulary.notes.append(
            "texts begin with BOS, as Gemma 4 needs it and readers do, though its tokenizer adds none"
        )
    else:
        vocabulary.model, vocabulary.pre = "gpt2", "sarvam-moe"  # the same splitting, and BOS as the file says


def stated_ids(model_config: Config, n_vocab: int) -> dict[str, int]:
    """bos, eos, ... in config.json; a value may be a list."""
    ids: dict[str, int] = {}
    for kind in _KINDS:
        stated = model_config.get(f"{kind}_token_id")
        first = stated[0] if isinstance(stated, list) and stated else stated
        if type(first) is int and 0 <= first < n_vocab:
            ids[kind] = first
        elif first is not None and (type(first) is not int or first >= n_vocab):
            raise CheckpointError(
                f"{model_config.where}: {kind}_token_id = {shown(first)}, but the model has {n_vocab} tokens."
            )
    return ids


def read_config(folder: Path, name: str) -> Config:
    """tokenizer_config.json, or {}."""
    path = folder / name
    return Config(read_object(path), name) if path.is_file() else Config({}, name)


def _add_tokens(vocabulary: Vocabulary, folder: Path, config: Config, n_vocab: int) -> None:
    """Adds the tokens of added_tokens.json (text -> id), then of added_tokens_decoder (id -> properties), which is more
    detailed."""
    for content, token in read_config(folder, "added_tokens.json").data.items():
        if type(token) is not int or not 0 <= token < 1 << 24:
            raise TokenizerError(f"added_tokens.json: {shown(content)} = {shown(token)}, expected an id.")
        if token >= len(vocabulary.tokens) or vocabulary.tokens[token] != content:
            vocabulary.add(token, content, False, n_vocab)
    decoder = config.section("added_tokens_decoder")
    for key, entry in decoder.data.items():
        text = entry.get("content") if isinstance(entry, dict) else None
        if not key.isdecimal() or len(key) > 8 or not isinstance(text, str) or not text:
            raise TokenizerError(f"{decoder.where}: {shown(key)} is not an added token with content.")
        vocabulary.add(int(key), text, entry.get("special") is True, n_vocab)
        vocabulary.note_found(int(key), entry)


def _special_texts(folder: Path, config: Config) -> dict[str, str]:
    """bos, eos, ... -> text, from tokenizer_config.json, else special_tokens_map.json."""
    texts: dict[str, str] = {}
    for source in (config, read_config(folder, "special_tokens_map.json")):
        for kind in _KINDS:
            entry = source.get(f"{kind}_token")
            text = entry.get("content") if isinstance(entry, dict) else entry
            if text is not None and not isinstance(text, str):
                raise source.wrong(f"{kind}_token", "the text of a token")
            if text:
                texts.setdefault(kind, text)
    return texts


def _read_post_processor(
    vocabulary: Vocabulary, folder: Path, names: dict[str, str], id_of: dict[str, int], goes_on: bool
) -> None:
    """Reads what tokenizer.json puts around a text; it takes precedence over tokenizer_config.json."""
    content = read_config(folder, "tokenizer.json").data
    processor = content.get("post_processor")
    if not isinstance(processor, dict):
        return
    steps = processor.get("processors") if processor.get("type") == "Sequence" else [processor]
    for step in steps if isinstance(steps, list) else []:
        kind = step.get("type") if isinstance(step, dict) else None
        if kind == "ByteLevel":
            vocabulary.flags.setdefault("add_bos_token", False)
            vocabulary.flags.setdefault("add_eos_token", False)
        elif kind == "RobertaProcessing":
            for name, place in (("bos", "cls"), ("eos", "sep")):
                pair = step.get(place)
                text = pair[0] if isinstance(pair, list) and pair else None
                if isinstance(text, str) and name not in names and text in id_of:
                    names[name] = text
                    vocabulary.ids[name] = id_of[text]
            for name in ("bos", "eos", "sep"):
                vocabulary.flags[f"add_{name}_token"] = True
        elif kind == "TemplateProcessing":
            _read_template(vocabulary, step, names, id_of, goes_on)


def _read_template(
    vocabulary: Vocabulary, step: dict[str, Any], names: dict[str, str], id_of: dict[str, int], goes_on: bool
) -> None:
    """`single` is a list like [special, text, special]; `pair` has two texts."""
    single, pair = _template(step.get("single")), _template(step.get("pair"))
    if "" not in single:
        return
    before, after = single[: single.index("")], single[single.index("") + 1 :]
    if before and "bos" not in names and before[0] in id_of:
        names["bos"] = before[0]
        vocabulary.ids["bos"] = id_of[before[0]]
    if after and "eos" not in names and after[-1] in id_of:
        names["eos"] = after[-1]
        vocabulary.ids["eos"] = id_of[after[-1]]
    elif after and after[-1] in id_of and after[-1] != names["eos"] and not goes_on:
        # Qwen3-Embedding: texts end with another token than answers
        if names["eos"] in id_of:
            vocabulary.ids["eot"] = id_of[names["eos"]]
        vocabulary.ids["eos"] = id_of[after[-1]]
        names["eos"] = after[-1]
    vocabulary.flags["add_bos_token"] = bool(before)
    vocabulary.flags["add_eos_token"] = bool(after)
    if before and before[0] not in (names.get("bos"), names.get("cls")):
        vocabulary.notes.append(f"the tokenizer begins texts with {shown(before[0])}, which is not its BOS token")
    if pair.count("") == 2:
        first = pair.index("")
        between = pair[first + 1 : pair.index("", first + 1)]
        between = [text for text in between if text not in before]
        ends = [text in (names.get("sep"), names.get("eos")) for text in between]
        # the first of them may be what ends a text anyway
        vocabulary.flags["add_sep_token"] = (any(ends[:1]) and not after) or (len(ends) == 2 and ends[1])


def _template(steps: Any) -> list[str]:
    """The texts of special tokens, "" for a sequence."""
    texts = []
    for step in steps if isinstance(steps, list) else []:
        special = step.get("SpecialToken") if isinstance(step, dict) else None
        text = special.get("id") if isinstance(special, dict) else ""
        texts.append(text if isinstance(text, str) else "")
    return texts


def chat_templates(folder: Path, config: Config) -> dict[str, str]:
    """Chat templates by name: chat_template.jinja takes precedence over tokenizer_config.json, that over
    chat_template.json."""
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        templates = {"default": _text(jinja)}
        for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
            templates[path.stem] = _text(path)
        return templates
    value, where = config.get("chat_template"), config.where
    if value is None:
        alternative = read_config(folder, "chat_template.json")
        value, where = alternative.get("chat_template"), alternative.where
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    named = {}
    for entry in value if isinstance(value, list) else [None]:
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("name"), str)
            or not isinstance(entry.get("template"), str)
        ):
            raise CheckpointError(f"{where}: chat_template is {kind_of(value)}, expected a text or named texts.")
        named[entry["name"]] = entry["template"]
    return named


def _text(path: Path) -> str:
    try:
        return decoded(path.read_bytes())
    except UnicodeDecodeError:
        raise CheckpointError(f"{shown(path.name)} is not UTF-8. Download it again.") from None
    except OSError as error:
        raise CheckpointError(f"{shown(path.name)} cannot be read: {error.strerror}.") from None


def _find_end_of_turn(vocabulary: Vocabulary, folder: Path, id_of: dict[str, int], n_vocab: int) -> None:
    """Finds the token that ends a turn: generation_config.json may list it, else the template shows it."""
    stated = read_config(folder, "generation_config.json").get("eos_token_id")
    eos = vocabulary.ids.get("eos")
    if isinstance(stated, list):
        others = [token for token in stated if type(token) is int and 0 <= token < n_vocab and token != eos]
        if others:
            vocabulary.ids["eot"] = others[0]
            return
    template = vocabulary.chat_templates.get("default", "")
    for text in _END_OF_TURN:
        token = id_of.get(text)
        if token is not None and text in template and token != eos and vocabulary.types[token] == TokenType.CONTROL:
            vocabulary.ids["eot"] = token
            return
    if _CODE_LLAMA_END in id_of:
        vocabulary.ids["eot"] = id_of[_CODE_LLAMA_END]
