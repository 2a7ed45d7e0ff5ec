"""Fields of config.json that have no effect on the file, with reasons; notes about unknown fields.

A field is either used: the family asks for it (`Config.looked` records that); or refused unless it has a certain value:
`Config.expects`; or without effect on the text: listed below, or in the family's `without_effect`. Any other field is
named in a note. docs/config-fields.md lists all fields.
"""

from collections.abc import Iterable, Iterator, Mapping

from hybrid.quant.ggml.errors import shown

from .architectures.family import Family
from .architectures.unused_fields import ONLY_PICTURES
from .checkpoint import Config
from .vision.processor import PictureConfig

# By reason, for every family; also for the text part of a multimodal config.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "only training: initial values, dropout, losses": (
        "initializer_range", "initializer_factor", "attention_dropout", "hidden_dropout", "hidden_dropout_prob",
        "attention_probs_dropout_prob", "classifier_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
        "residual_dropout", "embedding_dropout", "mlp_dropout", "router_aux_loss_coef",
        "z_loss_coefficient", "output_router_logits", "rescale_prenorm_residual", "gradient_checkpointing",
        "problem_type",
    ),
    "only how transformers computes: memory, speed, form of its outputs; the result is the same up to rounding": (
        "use_cache", "chunk_size_feed_forward", "num_logits_to_keep", "use_mamba_kernels", "use_mambapy",
        "use_falcon_mambapy", "use_associative_scan", "mamba_chunk_size", "chunk_size", "use_mem_eff_path",
        "residual_in_fp32", "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "pretraining_tp", "torchscript",
        "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation",
        "use_flash_attn", "output_attentions", "output_hidden_states", "return_dict", "cache_implementation",
        "tie_last_hidden_states", "use_bfloat16", "use_return_dict", "tie_encoder_decoder", "reorder_and_upcast_attn",
    ),
    "only description: what the checkpoint is called, who wrote it, labels of heads that are not converted": (
        "architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash",
        "auto_map", "custom_pipelines", "id2label", "label2id", "num_labels", "torch_dtype", "dtype",
        "finetuning_task", "unsloth_version", "unsloth_fixed", "keys_to_ignore_at_inference",
        "base_config_key",
    ),
    "special tokens and class of the tokenizer: taken with the vocabulary": (
        "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
        "mask_token_id", "decoder_start_token_id", "tokenizer_class",
    ),
    "how text is sampled: transformers takes it from generation_config.json, and so does the conversion": (
        "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
        "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
        "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
        "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
        "task_specific_params", "prefix",
    ),
}  # fmt: skip
_REASONS = {name: reason for reason, names in WITHOUT_EFFECT.items() for name in names}

# Features that a config can give any model in transformers, and that hardly a family here supports.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "per_layer_config": ({},),
    "pruned_heads": ({},),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
}

# Objects that are checked elsewhere: the tensors show how they are quantized, and other layouts are refused.
_OTHERS = ("quantization_config", "compression_config", "quantization")
_ROPE = ("rope_parameters", "rope_scaling")


def without_effect(family: type[Family] | Family, path: str) -> str | None:
    """Why the field at a dotted path has no effect; None if the table does not list it."""
    name = _plain(family, path)
    if name.partition(".")[0] in family.counts:
        return None
    while name and not (why := family.without_effect.get(name) or _REASONS.get(name)):
        name = name.rpartition(".")[0]  # the object around it
    return why if name else None


def condition(family: type[Family] | Family, path: str) -> str | None:
    """When the field at a dotted path is used; None: always."""
    return family.conditional.get(_plain(family, path))


def _plain(family: type[Family] | Family, path: str) -> str:
    for prefix in family.own_objects:
        path = path.removeprefix(prefix)
    return path


def refuse_what_none_can(config: Config, family: type[Family]) -> None:
    """UnsupportedError names a field of `REFUSED` with an unsupported value, unless the family handles it."""
    for key, values in REFUSED.items():
        if key not in family.understood:
            config.expects(key, *values)


def notes(config: Config, family: Family) -> Iterator[str]:
    """Notes on fields that nobody asked for and no table lists, and on fields that another spelling contradicts.
    `config`: a whole file, after everything was read from it."""
    yield from _unknown(config, family, paths(config))
    for path, by in (config.looked.ignored() | dict(_outside(config))).items():
        yield f"{config.where}: {shown(path)} is ignored, because {shown(by)} says otherwise"


def tower_notes(config: PictureConfig, tower: Family, text: type[Family]) -> Iterator[str]:
    """As `notes`, for a vision tower. text: the family of its text model, whose notes are on all other fields."""
    own = {name for name, why in text.without_effect.items() if why == ONLY_PICTURES}
    yield from _unknown(config, tower, (path for path in paths(config) if path.partition(".")[0] in own))
    for part in (config.processor, config.outer):
        yield from _unknown(part, tower, paths(part))
    for part in (config, config.processor, config.outer):
        yield from (
            f"{part.where}: {a} is ignored, because {b} says otherwise" for a, b in part.looked.ignored().items()
        )


def _unknown(config: Config, family: Family, paths: Iterable[str]) -> Iterator[str]:
    """A note that names the paths that no table lists."""
    yield from _note(config, [path for path in paths if not (without_effect(family, path) or condition(family, path))])


def outer_notes(config: Config, fields: Iterable[str]) -> Iterator[str]:
    """As `notes`, on these fields beside the object of a text model."""
    yield from _note(config, [name for name in fields if name not in _REASONS and name not in REFUSED])


def _note(config: Config, unknown: list[str]) -> Iterator[str]:
    if unknown:
        more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
        names = ", ".join(map(shown, unknown[:8]))
        yield f"{config.where}: {names}{more} unknown for this architecture, and ignored"


def paths(config: Config) -> Iterator[str]:
    """Dotted paths of non-null fields that nobody looked at, including those inside objects that somebody did."""
    looked = config.looked

    def below(data: Mapping[str, object], prefix: str) -> Iterator[str]:
        for key, value in data.items():
            path = prefix + key
            if isinstance(value, dict) and path in looked.sections and path.removeprefix("text_config.") not in _OTHERS:
                yield from below(value, path + ".")
            elif value is not None and path not in looked.used and path not in looked.expected:
                yield path

    yield from below(config.data, "")


def _outside(config: Config) -> Iterator[tuple[str, str]]:
    """RoPE settings given both beside and inside their object, with different values: the object takes precedence."""
    text = config.data.get("text_config")
    for prefix, data in (("", config.data), ("text_config.", text if isinstance(text, dict) else {})):
        for section in _ROPE:
            inner = data.get(section)
            if not isinstance(inner, dict) or prefix + section not in config.looked.sections:
                continue
            for key in ("rope_theta", "partial_rotary_factor"):
                if None not in (inner.get(key), data.get(key)) and inner[key] != data[key]:
                    yield prefix + key, f"{section}.{key}"
