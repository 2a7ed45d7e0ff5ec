"""Config fields of several families that have no effect on the file, with reasons, for their `without_effect`."""

from ..checkpoint import Config

STEP_SIZES = dict.fromkeys(
    (
        "time_step_min",
        "time_step_max",
        "time_step_floor",
        "time_step_scale",
        "time_step_init_scheme",
        "dt_min",
        "dt_max",
        "dt_init",
        "dt_scale",
        "dt_init_floor",
        "A_init_range",
        "conv_init",
    ),
    "only training: initial step sizes and decays",
)

NO_POSITIONS = dict.fromkeys(
    (
        "max_position_embeddings",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
    ),
    "the model has no attention, or one without positions and windows; it reads texts of any length",
)

ONLY_PICTURES = "only pictures: the file with the vision tower has what counts"
PICTURES = dict.fromkeys(
    (
        "vision_config",
        "mm_tokens_per_image",
        "image_token_id",
        "video_token_id",
        "audio_token_id",
        "vision_start_token_id",
        "vision_end_token_id",
        "vision_token_id",
        "boi_token_id",
        "boi_token_index",
        "eoi_token_id",
        "eoi_token_index",
        "image_token_index",
        "language_model_only",
        "projector_hidden_act",
        "vision_feature_layer",
        "multimodal_projector_bias",
        "spatial_merge_size",
        "scale_factor",
    ),
    ONLY_PICTURES,
)

PROJECTOR = dict.fromkeys(
    (
        *("projector_hidden_size", "projector_bias", "projector_use_layernorm", "downsample_factor"),
        "use_image_special_tokens",
    ),
    ONLY_PICTURES,
)

# Beginnings of names of tensors, for `dropped`.
PICTURE_TENSORS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")

HIDDEN_ACT = {"hidden_act": "hidden_activation counts, as in transformers"}
LAYER_KINDS = dict.fromkeys(
    ("layer_types", "layers_block_type"), "transformers derives it from the other keys that say which layer is what"
)
MTP = dict.fromkeys(
    (
        "num_nextn_predict_layers",
        "mtp_layers_block_type",
        "mtp_hybrid_override_pattern",
        "mtp_num_hidden_layers",
        "mtp_use_dedicated_embeddings",
    ),
    "only layers that guess tokens ahead, which are left out",
)
# of families whose heads are converted
HEADS = dict.fromkeys((*MTP, "num_mtp_layers"), "only heads that guess tokens ahead: the checkpoint's tensors tell")
MROPE = dict.fromkeys(
    ("rope_parameters.mrope_interleaved", "rope_scaling.mrope_interleaved"),
    "only pictures: the three positions of a token of text are one",
)
STATE_SPACES = {
    **dict.fromkeys(("fused_add_norm", "use_fast_path"), "only how it is computed"),
    "attn_cfg": "of layers with attention, without which a checkpoint must be",
}


def read_mtp(config: Config) -> int:
    """The number of layers that guess tokens, which some checkpoints number after the others."""
    return config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)


def mtp_layers(n_layer: int, n_mtp: int) -> tuple[str, ...]:
    """Prefixes of the names of their tensors."""
    return tuple(f"model.layers.{i}." for i in range(n_layer, n_layer + n_mtp))
