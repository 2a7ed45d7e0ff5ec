"""Classes whose text model is of a family here, in one table: towers, projectors and heads for sound are left out.

The text model is converted as if it were a checkpoint of its own: `Wrapper.config` makes that checkpoint's config.json,
and `Wrapper.name` the names of its tensors. Classes with a tower that is converted have families of their own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hybrid.quant.ggml.errors import UnsupportedError, shown

from ..checkpoint import Config
from .unused_fields import PICTURES, PROJECTOR
from .wrapped import CHANGED, RENAMED, TEXTS, usual_fields, without_rows

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
    within: tuple[str, ...] = ()  # parts of the names of further tensors that are left out
    prefixes: tuple[tuple[str, str], ...] = TRANSFORMERS  # of its text model's tensors -> in the text model's own class
    tied: bool = False  # transformers' default of its tie_word_embeddings
    rows: bool = False  # positions have rows and columns of pictures (M-RoPE): in texts the three are one
    fields: tuple[str, ...] = ()  # of its config, which only the parts left out read

    def text(self, config: Config) -> Config:
        """The section of the text model."""
        paths = [path.split(".") if path else [] for path in self.section.split("|")]
        for key in next((path for path in paths if not path or path[0] in config), paths[0]):
            config = config.section(key)
        return config

    def kind(self, config: Config) -> str:
        """The model_type of the text model. UnsupportedError: it is of no family here."""
        text = self.text(config)
        kind = self.usual if text is config else text.string("model_type", default=self.usual)
        if kind not in (self.texts or TEXTS):
            raise UnsupportedError(
                f"{text.where}: model_type = {shown(kind)} is not supported as the text model of {self.name}, only "
                f"{' or '.join(self.texts or sorted(TEXTS))} is."
            )
        return kind

    def text_class(self, config: Config) -> str:
        """The class of the text model. UnsupportedError: it is of no family here."""
        return TEXTS[self.kind(config)]

    def config(self, config: Config, names: Iterable[str]) -> Config:
        """The config of the text model alone. names: of its tensors, as `name` makes them."""
        text, kind = self.text(config), self.kind(config)
        data = dict(text.data)
        if text is config:
            data = {key: value for key, value in data.items() if not self.knows(key)}
        else:
            data = {key: config.data[key] for key in _SHARED if config.data.get(key) is not None} | data
        data |= self._tied(config, text, set(names))
        if self.rows:
            without_rows(data)
        data = usual_fields(kind, text) | data
        if kind in CHANGED:
            data = CHANGED[kind](Config(data, text.where))
        return Config({**data, "architectures": [TEXTS[kind]]}, text.where)

    def _tied(self, config: Config, text: Config, there: Collection[str]) -> dict[str, bool]:
        """Whether the output matrix is the embedding, as a field. transformers asks the outer config, and published
        configs contradict each other: only a checkpoint without the matrix follows the one that says yes."""
        stated = [one.boolean("tie_word_embeddings") for one in (config, text) if "tie_word_embeddings" in one]
        if stated:
            return {"tie_word_embeddings": stated[0] if "lm_head.weight" in there else any(stated)}
        return {"tie_word_embeddings": True} if self.tied and there and "lm_head.weight" not in there else {}

    def leaves_out(self, name: str) -> bool:
        """Whether a tensor is of a part that the file leaves out."""
        return any(piece in name for piece in self.within) or any(
            found == part or found.startswith(f"{part}.")
            for found in (name, name.removeprefix("model."))
            for part in self.parts
        )

    def plain_name(self, name: str, kind: str = "") -> str:
        """The name of a tensor of a text model of this kind in a checkpoint of that alone."""
        old, new = next((pair for pair in self.prefixes if name.startswith(pair[0])), ("", ""))
        name = new + name.removeprefix(old)
        for old, new in RENAMED.get(kind, ()):
            name = name.replace(old, new, 1)
        return name

    def knows(self, key: str) -> bool:
        """Whether a field of the config is of parts that are left out."""
        return key in _OUTER or key in self.fields

    def unknown(self, config: Config) -> Iterator[str]:
        """Names of the fields beside the text model's that nobody knows. Copies of the text model's are known."""
        text = self.text(config)
        if text is config:
            return
        own = {
            *(path.partition(".")[0] for path in self.section.split("|")),
            "tie_word_embeddings",
            "vocab_size",
            "hidden_size",
            *_SHARED,
        }
        for key, value in config.data.items():
            copied = key in text.data and text.data[key] == value
            if value is not None and key not in own and not copied and not self.knows(key):
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

_DEEPSEEK_OCR = (
    *("sam_model", "vision_model", "qwen2_model", "projector", "view_seperator", "image_newline"),
    *("vision_tower", "multi_modal_projector", "view_separator"),
)
_BARE = (*((f"{name}.", f"model.{name}.") for name in ("embed_tokens", "layers", "norm")), *TRANSFORMERS)
_COSMOS_TOWER = ("blocks", "merger", "patch_embed", "pos_embed", "deepstack_merger_list")
# of the transformer that makes pictures beside the text model: top-level tensors, and parts of layers
_GENERATED = (
    *("proj_in", "proj_out", "time_embedder", "audio_proj_in", "audio_proj_out", "audio_modality_embed"),
    *("action_proj_in", "action_proj_out", "action_modality_embed"),
)
_GENERATOR = (
    *("moe_gen", ".add_q_proj.", ".add_k_proj.", ".add_v_proj.", ".to_add_out.", ".norm_added_q.", ".norm_added_k."),
    ".k_norm_und_for_gen.",
)
_ERNIE_FIELDS = (
    *("rope_3d", "freq_allocation", "im_patch_id", "pixel_hidden_size", "modality_detach", "temporal_conv_size"),
    *("spatial_conv_size", "use_temporal_conv", "mm_vocab_size", "max_text_id"),
)

ROWS: tuple[Wrapper, ...] = (
    # pictures
    Wrapper("AriaForConditionalGeneration", PROJECTED, "aria_text", ("aria_text",)),
    Wrapper("AriaTextForCausalLM", (), "aria_text", ("aria_text",), section=FLAT),
    Wrapper("AyaVisionForConditionalGeneration", PROJECTED, "cohere2", tied=True),
    Wrapper("Cohere2VisionForConditionalGeneration", PROJECTED, "cohere2", tied=True),
    Wrapper(
        "Cosmos3EdgeForConditionalGeneration", ("visual", "projector", *_GENERATED), "cosmos3_edge_text",
        ("cosmos3_edge_text",), rows=True, within=_GENERATOR, prefixes=_BARE,
    ),
    Wrapper(
        "Cosmos3OmniForConditionalGeneration", ("visual", *_COSMOS_TOWER, *_GENERATED), "qwen3_vl_text",
        ("qwen3_vl_text",), rows=True, within=_GENERATOR, prefixes=_BARE,
    ),
    *(
        Wrapper(
            name, _DEEPSEEK_OCR, "deepseek_ocr2_text", section="text_config|language_config",
            texts=("deepseek_ocr2_text",), fields=("global_view_pos", "tile_tag", "candidate_resolutions"),
        )
        for name in ("DeepseekOcr2ForConditionalGeneration", "DeepseekOCR2ForCausalLM", "DeepseekOCRForCausalLM")
    ),
    Wrapper("DeepseekVLForConditionalGeneration", ("vision_model", "aligner"), "llama", tied=True),
    Wrapper(
        "DeepseekVLHybridForConditionalGeneration", ("vision_model", "aligner", *_HYBRID_PARTS), "llama", tied=True
    ),
    Wrapper("DotsOCRForCausalLM", ("vision_tower",), "qwen2", section=FLAT),
    Wrapper("DotsVLMForCausalLM", ("vision_tower",), "deepseek_v3", section=FLAT),
    *(
        Wrapper(
            name, ("vision_model", "vision_tower", "resampler_model"), "ernie4_5_vl_moe_text",
            ("ernie4_5_vl_moe_text",), section="text_config|", rows=True, tied=True, fields=_ERNIE_FIELDS,
            within=(".mlp.gate.weight_1", ".vision_moe."),
        )
        for name in ("Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VL_MoeForConditionalGeneration")
    ),
    Wrapper("Exaone4_5_ForConditionalGeneration", ("visual",), "exaone4", ("exaone4", "exaone4_5_text")),
    Wrapper("FastVlmForConditionalGeneration", PROJECTED, "qwen2"),
    Wrapper(
        "Gemma4UnifiedForCausalLM", (), "gemma4_unified_text", ("gemma4_unified_text",), section=FLAT, tied=True
    ),
    Wrapper(
        "Gemma4UnifiedForConditionalGeneration", ("embed_vision", "embed_audio", "vision_embedder"),
        "gemma4_unified_text", ("gemma4_unified_text",), tied=True,
        fields=("boa_token_id", "eoa_token_id", "eoa_token_index"),
    ),
    Wrapper("Glm46VForConditionalGeneration", ("visual",), "glm4v_text", ("glm4v_text", "glm4v_moe_text"), rows=True),
    Wrapper("Glm4vForConditionalGeneration", ("visual",), "glm4v_text", ("glm4v_text",), rows=True),
    Wrapper("Glm4vMoeForConditionalGeneration", ("visual",), "glm4v_moe_text", ("glm4v_moe_text",), rows=True),
    Wrapper(  # layer 16 guesses tokens
        "GlmOcrForConditionalGeneration", ("visual", "language_model.layers.16"), "glm_ocr_text", ("glm_ocr_text",),
        rows=True,
    ),
    Wrapper("GotOcr2ForConditionalGeneration", PROJECTED, "qwen2", tied=True),
    Wrapper(
        "GraniteDoclingForConditionalGeneration", ("vision_model", "density_router"), "granite_docling_text",
        ("granite_docling_text",), prefixes=(("model.text_model.", "model."),), tied=True,
        fields=("density_router_hidden_size", "density_router_threshold", "density_router_loss_weight"),
    ),
    Wrapper(
        "HunYuanVLForConditionalGeneration", ("vit", "vision_tower"), "hunyuan_vl_text", ("hunyuan_vl_text",),
        section="text_config|", rows=True, tied=True, fields=("im_start_id", "im_end_id", "im_newline_id"),
    ),
    Wrapper(
        "HyperCLOVAXVisionV2ForConditionalGeneration", ("vision_model", "vision_projector", "projector"),
        "hyperclovax", ("hyperclovax",), tied=True,
        prefixes=(("model.language_model.lm_head.", "lm_head."), ("model.language_model.model.", "model."),
                  *TRANSFORMERS),
    ),
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
    Wrapper(
        "Molmo2ForConditionalGeneration", (*PROJECTED, "vision_backbone"), "molmo2_text", ("molmo2_text",),
        prefixes=(("model.transformer.", "model."), *TRANSFORMERS), within=(".wte.new_embedding",),
        fields=("vit_config", "adapter_config", "image_patch_id", "low_res_image_start_token_id",
                "frame_start_token_id", "frame_end_token_id"),
    ),
    Wrapper("Ovis2ForConditionalGeneration", ("vision_tower", "visual_embeddings_table"), "qwen2", tied=True),
    Wrapper(
        "PaddleOCRVLForConditionalGeneration", ("visual", "mlp_AR", "projector"), "paddleocr_vl_text",
        ("paddleocr_vl_text",), section="text_config|", rows=True, tied=True,
    ),
    Wrapper("PerceptionLMForConditionalGeneration", PROJECTED, "llama"),
    Wrapper("QianfanOCRForConditionalGeneration", (*PROJECTED, "vision_model", "mlp1"), "qwen3"),
    Wrapper(
        "Qwen3VLMoeForConditionalGeneration", ("visual",), "qwen3_vl_moe_text", ("qwen3_vl_moe_text",), rows=True
    ),
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
        "Apertus1p5ForConditionalGeneration", ("vision_tokenizer", "audio_tokenizer"), "apertus1p5_text",
        ("apertus1p5_text",), fields=("image_token_offset", "audio_token_offset"),
    ),
    Wrapper("Apertus1p5TextForCausalLM", (), "apertus1p5_text", ("apertus1p5_text",), section=FLAT),
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
    **dict.fromkeys(
        ("UnlimitedOcrForConditionalGeneration", "UnlimitedOCRForCausalLM"),
        "its windows keep the whole prompt, and no family here has such windows",
    ),
    **dict.fromkeys(
        ("Step3p7ForConditionalGeneration", "StepVLForConditionalGeneration"),
        "its text model has layers of Step 3.5, and no family here is that",
    ),
    "PaliGemmaForConditionalGeneration": "it reads prompts in both directions, and no family here does",
    "CogVLMForCausalLM": "its layers have separate matrices for pictures",
    "Phi4MMForCausalLM": "adapters for pictures and sound are within its matrices",
    "Phi4MultimodalForCausalLM": "adapters for pictures and sound are within its matrices",
}
