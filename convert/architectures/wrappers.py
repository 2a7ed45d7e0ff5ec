"""Classes whose text model is of a family here, in one table: towers, projectors and heads for sound are left out.

The text model is converted as if it were a checkpoint of its own: `Wrapper.config` makes that checkpoint's config.json,
and `Wrapper.name` the names of its tensors. Classes with a tower that is converted have families of their own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hybrid.quant.ggml.errors import UnsupportedError, shown

from ..checkpoint import Config
from .unused_fields import PICTURES, PROJECTOR

# model_type of a text model -> its class
TEXTS: Mapping[str, str] = {
    "bailing_hybrid": "BailingMoeV3ForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "exaone4_5_text": "Exaone4ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm4v_text": "Glm4ForCausalLM",
    "glm4v_moe_text": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "inkling2_loop_text": "Inkling2LoopForCausalLM",
    "inkling2_text": "Inkling2ForCausalLM",
    "inkling_text": "InklingForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_omni_text": "Qwen2_5_VLForConditionalGeneration",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
}

# transformers' sizes of text models: published configs of wrappers leave these out
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
USUAL: Mapping[str, Mapping[str, Any]] = {
    "cohere2": dict(zip(_SIZES, (8192, 22528, 40, 64, 256000), strict=True)),
    "glm4v_text": {"attention_bias": True},
    "glm4v_moe_text": {"attention_bias": True},
    "llama": dict(zip(_SIZES, (4096, 11008, 32, 32, 32000), strict=True)),
    "mistral": {**dict(zip(_SIZES, (4096, 14336, 32, 32, 32000), strict=True)), "num_key_value_heads": 8},
    "qwen2": {**dict(zip(_SIZES, (4096, 22016, 32, 32, 151936), strict=True)), "num_key_value_heads": 32},
    "qwen3": {**dict(zip(_SIZES, (4096, 22016, 32, 32, 151936), strict=True)), "num_key_value_heads": 32},
}

TRANSFORMERS = (("model.language_model.", "model."), ("language_model.", ""))
PROJECTED = ("vision_tower", "multi_modal_projector")
HEARD = ("audio_tower", "multi_modal_projector")
FLAT = ""  # the section of a config that has the text model's fields beside the others


@dataclass(frozen=True)
class Wrapper:
    """One class. Names of parts may begin with `model.` in the checkpoint."""

    name: str  # in `architectures`
    parts: tuple[str, ...]  # beginnings of the names of tensors that are left out
    usual: str  # model_type of its text model, where its config does not say it
    texts: tuple[str, ...] = ()  # model_types that it may have; empty: all of TEXTS
    section: str = "text_config"  # of its config, with dots between levels; after | another; FLAT: all of it
    prefixes: tuple[tuple[str, str], ...] = TRANSFORMERS  # of its text model's tensors -> in the text model's own class
    tied: bool = False  # transformers' default of its tie_word_embeddings
    rows: bool = False  # positions have rows and columns of pictures (M-RoPE): in texts the three are one
    fields: tuple[str, ...] = ()  # of its config, which only the parts left out read

    def text(self, config: Config) -> Config:
        """The section of the text model."""
        paths = [path.split(".") for path in self.section.split("|") if path]
        for key in next((path for path in paths if path[0] in config), paths[0]) if paths else ():
            config = config.section(key)
        return config

    def text_class(self, config: Config) -> str:
        """The class of the text model. UnsupportedError: it is of no family here."""
        text = self.text(config)
        kind = self.usual if self.section == FLAT else text.string("model_type", default=self.usual)
        if kind not in (self.texts or TEXTS):
            raise UnsupportedError(
                f"{text.where}: model_type = {shown(kind)} is not supported as the text model of {self.name}, only "
                f"{' or '.join(self.texts or sorted(TEXTS))} is."
            )
        return TEXTS[kind]

    def config(self, config: Config, names: Iterable[str]) -> Config:
        """The config of the text model alone. names: of its tensors, as `name` makes them."""
        text, name = self.text(config), self.text_class(config)
        kind = next(kind for kind, known in TEXTS.items() if known == name)
        data = dict(text.data)
        if self.section == FLAT:
            data = {key: value for key, value in data.items() if not self.knows(key)}
        else:
            data = {key: config.data[key] for key in _SHARED if config.data.get(key) is not None} | data
        data |= self._tied(config, text, set(names))
        if kind == "glm4v_text":
            data = _as_glm4(text) | data
        if self.rows:
            data.pop("mrope_section", None)
            for key in ("rope_parameters", "rope_scaling"):
                if isinstance(data.get(key), dict):
                    data[key] = _in_a_row(data[key])
        return Config({**USUAL.get(kind, {}), **data, "architectures": [name]}, text.where)

    def _tied(self, config: Config, text: Config, there: Collection[str]) -> dict[str, bool]:
        """Whether the output matrix is the embedding, as a field. transformers asks the outer config, and published
        configs contradict each other: only a checkpoint without the matrix follows the one that says yes."""
        stated = [one.boolean("tie_word_embeddings") for one in (config, text) if "tie_word_embeddings" in one]
        if stated:
            return {"tie_word_embeddings": stated[0] if "lm_head.weight" in there else any(stated)}
        return {"tie_word_embeddings": True} if self.tied and there and "lm_head.weight" not in there else {}

    def leaves_out(self, name: str) -> bool:
        """Whether a tensor is of a part that the file leaves out."""
        return any(
            found == part or found.startswith(f"{part}.")
            for found in (name, name.removeprefix("model."))
            for part in self.parts
        )

    def plain_name(self, name: str) -> str:
        """The name of a text model's tensor in a checkpoint of that alone."""
        for old, new in self.prefixes:
            if name.startswith(old):
                return new + name.removeprefix(old)
        return name

    def knows(self, key: str) -> bool:
        """Whether a field of the config is of parts that are left out."""
        return key in _OUTER or key in self.fields

    def unknown(self, config: Config) -> Iterator[str]:
        """Names of the fields beside the text model's that nobody knows."""
        if self.section == FLAT:
            return
        own = {
            *(path.partition(".")[0] for path in self.section.split("|")),
            "tie_word_embeddings",
            "vocab_size",
            "hidden_size",
            *_SHARED,
        }
        for key, value in config.data.items():
            if value is not None and key not in own and not self.knows(key):
                yield key


# Fields that a text model's config may leave to the one around it.
_SHARED = ("dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id")
_OUTER = frozenset(
    (
        *PICTURES, *PROJECTOR, "audio_config", "sound_config", "encoder_config", "projector_config", "perceiver_config",
        "high_res_vision_config", "vq_config", "adaptor_config", "preprocessor", "vision_feature_select_strategy",
        "image_seq_length", "video_seq_length", "video_token_index", "audio_token_index", "image_grid_pinpoints",
        "vision_aspect_ratio", "spatial_pool_mode", "spatial_pool_stride", "projector_layernorm_eps",
        "downsample_ratio", "downsample_rate", "adapter_layer_norm_eps", "alignment_intermediate_size",
        "projection_dim", "projection_hidden_size", "projection_layer_norm_eps", "projector_pooling_ratio",
        "vision_use_cls_token", "visual_indicator_token_ids", "visual_token_id", "ignore_index",
        "image_start_token_id", "image_end_token_id", "video_start_token_id", "video_end_token_id",
        "audio_bos_token_id", "audio_eos_token_id", "audio_start_token_id", "audio_end_token_id",
        "has_lora_adapter", "window_size", "audio_merge_size", "audio_chunk_size", "timestamp_token_id",
        "insert_layer_id", "image_size", "drop_vision_last_layer", "downsample_mode", "merge_kernel_size",
        "merger_times", "image_start_id", "patch_size", "image_end_id", "slice_start_id", "slice_end_id", "newline_id",
        "force_image_size", "img_context_token_id", "img_context_token", "ps_version", "video_pruning_rate",
        "video_temporal_patch_size", "projector_hidden_size", "vision_hidden_size", "max_dynamic_patch",
        "min_dynamic_patch", "dynamic_image_size", "use_thumbnail", "pad2square", "select_layer", "template",
        "use_backbone_lora", "use_llm_lora",
        "token_classification_bias", "encoder_hidden_size", "text_config_dict", "vision_config_dict",
        "quantization_config", "compression_config", "quantization",
    )
)  # fmt: skip


def _as_glm4(text: Config) -> dict[str, Any]:
    """What the text model of GLM-4.1V has where its config does not say it, and GLM 4 has not."""
    made: dict[str, Any] = {"head_dim": text.integer("hidden_size") // text.integer("num_attention_heads")}
    if "partial_rotary_factor" not in text.section("rope_parameters", "rope_scaling"):
        made["partial_rotary_factor"] = 1.0
    return made


def _in_a_row(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of RoPE without the rows and columns of pictures."""
    made = {key: value for key, value in rope.items() if key not in ("mrope_section", "mrope_interleaved")}
    for key in ("rope_type", "type"):
        if made.get(key) == "mrope":
            made[key] = "default"
    return made


_NEMOTRON_PARTS = (
    *("vision_model", "vision_final_layernorm", "mlp1", "multi_modal_projector"),
    *("sound_encoder", "sound_projection", "audio_tower", "embed_audio"),
)
_NEMOTRON = ("NemotronH_Nano_VL_V2", "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3")
_NEMOTRON_FIELDS = (
    *("max_sequence_length", "patch_size", "img_start_token", "img_end_token", "norm_mean", "norm_std"),
    *("sound_context_token_id", "sound_context_token", "vit_hidden_size", "image_tag_type"),
    *("video_context_token_id", "video_context_token"),
)
_INKLING = ("vision_tower", "audio_tower", "visual", "audio")
_LLAVA = (*PROJECTED, "image_newline")
_OMNI = ("thinker.visual", "thinker.audio_tower", "visual", "audio_tower", "talker", "token2wav", "code2wav")
_OMNI_FIELDS = (
    *("talker_config", "token2wav_config", "code2wav_config", "enable_audio_output", "enable_talker"),
    *("system_token_id", "user_token_id", "assistant_token_id", "im_start_token_id", "im_end_token_id"),
    *("position_id_per_seconds", "seconds_per_chunk", "support_languages"),
    *("tts_bos_token_id", "tts_eos_token_id", "tts_pad_token_id"),
)
_LFM_PARTS = (
    *("conformer", "audio_adapter", "audio_embedding", "depthformer", "depth_linear", "depth_embeddings"),
    *("codebook_offsets", "audio_loss_weights"),
)
_JANUS = ("vision_model", "aligner", "vqmodel", "generation_embeddings", "generation_aligner", "generation_head")
_HYBRID_PARTS = ("high_res_vision_alpha", "high_res_vision_model", "high_res_vision_neck", "high_res_vision_proj")

ROWS: tuple[Wrapper, ...] = (
    # pictures
    Wrapper("AyaVisionForConditionalGeneration", PROJECTED, "cohere2", tied=True),
    Wrapper("Cohere2VisionForConditionalGeneration", PROJECTED, "cohere2", tied=True),
    Wrapper("DeepseekVLForConditionalGeneration", ("vision_model", "aligner"), "llama", tied=True),
    Wrapper(
        "DeepseekVLHybridForConditionalGeneration", ("vision_model", "aligner", *_HYBRID_PARTS), "llama", tied=True
    ),
    Wrapper("DotsOCRForCausalLM", ("vision_tower",), "qwen2", section=FLAT),
    Wrapper("DotsVLMForCausalLM", ("vision_tower",), "deepseek_v3", section=FLAT),
    Wrapper("Exaone4_5_ForConditionalGeneration", ("visual",), "exaone4", ("exaone4", "exaone4_5_text")),
    Wrapper("FastVlmForConditionalGeneration", PROJECTED, "qwen2"),
    Wrapper("Glm46VForConditionalGeneration", ("visual",), "glm4v_text", ("glm4v_text", "glm4v_moe_text"), rows=True),
    Wrapper("Glm4vForConditionalGeneration", ("visual",), "glm4v_text", ("glm4v_text",), rows=True),
    Wrapper("Glm4vMoeForConditionalGeneration", ("visual",), "glm4v_moe_text", ("glm4v_moe_text",), rows=True),
    Wrapper("GotOcr2ForConditionalGeneration", PROJECTED, "qwen2", tied=True),
    Wrapper(
        "Idefics2ForConditionalGeneration", ("vision_model", "connector"), "mistral",
        prefixes=(("model.text_model.", "model."),),
    ),
    Wrapper("InternS1ForConditionalGeneration", PROJECTED, "qwen3", tied=True),
    Wrapper("InternVLForConditionalGeneration", PROJECTED, "qwen2", tied=True),
    Wrapper("InternVLChatModel", ("vision_model", "mlp1"), "qwen2", section="llm_config|text_config"),
    Wrapper("JanusForConditionalGeneration", _JANUS, "llama", tied=True),
    Wrapper(
        "KimiK25ForConditionalGeneration", ("vision_tower", "mm_projector"), "kimi_k2", ("kimi_k2", "deepseek_v3"),
        tied=True,
    ),
    Wrapper(
        "Kimi_K25ForConditionalGeneration", ("vision_tower", "mm_projector"), "kimi_k2", ("kimi_k2", "deepseek_v3"),
        tied=True,
    ),
    Wrapper("KimiVLForConditionalGeneration", PROJECTED, "deepseek_v3", ("deepseek_v3",)),
    Wrapper("LightOnOcrForConditionalGeneration", ("vision_encoder", "vision_projection"), "qwen3", tied=True),
    Wrapper("LlavaForConditionalGeneration", PROJECTED, "llama"),
    Wrapper("LlavaNextForConditionalGeneration", _LLAVA, "llama"),
    Wrapper("LlavaNextVideoForConditionalGeneration", (*_LLAVA, "vision_resampler"), "llama"),
    Wrapper("LlavaOnevisionForConditionalGeneration", _LLAVA, "qwen2"),
    Wrapper("MiniCPMOcrForConditionalGeneration", ("vision_tower", "merger"), "qwen3_5_text"),
    Wrapper("MiniCPMV4_6ForConditionalGeneration", ("vision_tower", "merger"), "qwen3_5_text"),
    Wrapper("MiniCPMV4_7ForConditionalGeneration", ("vision_tower", "merger"), "qwen3_5_text"),
    Wrapper("Ovis2ForConditionalGeneration", ("vision_tower", "visual_embeddings_table"), "qwen2", tied=True),
    Wrapper("PerceptionLMForConditionalGeneration", PROJECTED, "llama"),
    Wrapper("QianfanOCRForConditionalGeneration", (*PROJECTED, "vision_model", "mlp1"), "qwen3"),
    Wrapper("VideoLlama3ForConditionalGeneration", ("vision_model", "projector"), "qwen2"),
    Wrapper("VideoLlavaForConditionalGeneration", ("image_tower", "video_tower", "multi_modal_projector"), "llama"),
    Wrapper("VipLlavaForConditionalGeneration", PROJECTED, "llama"),
    # sound
    Wrapper("AudioFlamingo3ForConditionalGeneration", HEARD, "qwen2"),
    Wrapper("FunAsrNanoForConditionalGeneration", HEARD, "qwen3", tied=True),
    Wrapper("GlmAsrForConditionalGeneration", HEARD, "llama", tied=True),
    Wrapper("GraniteSpeechForConditionalGeneration", ("encoder", "projector"), "granite", tied=True),
    Wrapper("GraniteSpeechPlusForConditionalGeneration", ("encoder", "projector"), "granite", tied=True),
    Wrapper(
        "Lfm2AudioForConditionalGeneration", _LFM_PARTS, "lfm2", ("lfm2",), section="lfm",
        prefixes=(("lfm.", "model."),),
        fields=("codebooks", "encoder", "depthformer", "interleaved_n_text", "interleaved_n_audio", "codebook_weight",
                "semantic_codebook_factor", "tie_audio_embeddings", "audio_vocab_size", "sample_rate",
                "adapter_hidden_dims", "adapter_dropout", "adapter_use_layer_norm", "text_loss_multiplier",
                "audio_loss_multiplier"),
    ),
    Wrapper("MossTranscribeDiarizeForConditionalGeneration", HEARD, "qwen3", tied=True),
    Wrapper(
        "MusicFlamingoForConditionalGeneration", HEARD, "qwen2",
        fields=("audio_frame_step", "rope_parameters", "max_position_embeddings", "head_dim"),
    ),
    Wrapper("OmniASRForConditionalGeneration", HEARD, "llama"),
    Wrapper("Qwen2AudioForConditionalGeneration", HEARD, "qwen2"),
    Wrapper(
        "Qwen3ASRForConditionalGeneration", (*HEARD, "thinker.audio_tower"), "qwen3", tied=True,
        section="text_config|thinker_config.text_config", prefixes=(*TRANSFORMERS, ("thinker.", "")),
        fields=_OMNI_FIELDS,
    ),
    Wrapper(
        "VibeVoiceAsrForConditionalGeneration",
        ("acoustic_tokenizer_encoder", "semantic_tokenizer_encoder", "multi_modal_projector"), "qwen2",
        fields=("acoustic_tokenizer_encoder_config", "semantic_tokenizer_encoder_config",
                "acoustic_tokenizer_chunk_size"),
    ),
    Wrapper("VoxtralForConditionalGeneration", HEARD, "llama"),
    # both
    Wrapper(
        "BailingMoeV3VLForConditionalGeneration", ("visual", "linear_proj"), "bailing_hybrid", ("bailing_hybrid",),
        rows=True, fields=("mrope_section",),
    ),
    Wrapper(
        "InklingForConditionalGeneration", _INKLING, "inkling_text", ("inkling_text",),
        prefixes=(*TRANSFORMERS, ("model.llm.", "model.")), fields=("mtp_config", "image_bos_token_id"),
    ),
    Wrapper(
        "Inkling2ForConditionalGeneration", ("vision_tower", "visual"), "inkling2_text", ("inkling2_text",),
        prefixes=(*TRANSFORMERS, ("model.llm.", "model.")),
    ),
    Wrapper(
        "Inkling2LoopForConditionalGeneration", ("vision_tower", "visual"), "inkling2_loop_text",
        ("inkling2_loop_text",), prefixes=(*TRANSFORMERS, ("model.llm.", "model.")),
    ),
    *(
        Wrapper(
            name, _NEMOTRON_PARTS, "nemotron_h", ("nemotron_h",), section="llm_config|text_config",
            fields=_NEMOTRON_FIELDS,
        )
        for name in _NEMOTRON
    ),
    *(
        Wrapper(
            name, _OMNI, "qwen2_5_omni_text", ("qwen2_5_omni_text",), section="thinker_config.text_config|text_config",
            prefixes=(("thinker.", ""), *TRANSFORMERS), fields=_OMNI_FIELDS,
        )
        for name in (
            "Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniModel", "Qwen2_5OmniThinkerForConditionalGeneration",
        )
    ),
    *(
        Wrapper(
            name, _OMNI, "qwen3_omni_moe_text", ("qwen3_omni_moe_text",), rows=True, fields=_OMNI_FIELDS,
            section="thinker_config.text_config|text_config", prefixes=(("thinker.", ""), *TRANSFORMERS),
        )
        for name in ("Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration")
    ),
)  # fmt: skip
WRAPPERS: Mapping[str, Wrapper] = {wrapper.name: wrapper for wrapper in ROWS}

# Classes whose text model reads pictures or sound with its own layers, or is changed by them.
REFUSED: Mapping[str, str] = {
    "MllamaForConditionalGeneration": "some of its layers attend to pictures, and no family here has such layers",
    "PaliGemmaForConditionalGeneration": "it reads prompts in both directions, and no family here does",
    "CogVLMForCausalLM": "its layers have separate matrices for pictures",
    "Phi4MMForCausalLM": "adapters for pictures and sound are within its matrices",
    "Phi4MultimodalForCausalLM": "adapters for pictures and sound are within its matrices",
}
