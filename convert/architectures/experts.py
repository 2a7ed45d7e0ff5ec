"""Config fields about experts: which layers have them, their groups, and their weights."""

from ..checkpoint import Config
from .blocks import read_kinds

GROUPS = "n_expert_group=groups/0 n_expert_group_used=groups/1"  # words of Family.order


def read_moe_layers(config: Config, n_layer: int, n_expert: int) -> tuple[bool, ...]:
    """Per layer, whether it has experts, from Qwen's keys."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise config.wrong("mlp_only_layers", "numbers of layers")
    return tuple(n_expert > 0 and i not in dense and (i + 1) % step == 0 for i in range(n_layer))


def read_dense(config: Config, n_layer: int, default: int) -> int:
    """The number of first layers without experts."""
    if "mlp_layer_types" not in config:
        return config.integer("first_k_dense_replace", default=default, minimum=0, maximum=n_layer)
    sparse = read_sparse(config, n_layer)
    n_dense = sparse.count(False)
    if any(sparse[:n_dense]):
        raise config.wrong("mlp_layer_types", "layers without experts before all layers with experts")
    return n_dense


def read_sparse(config: Config, n_layer: int) -> list[bool]:
    """Per layer, whether it has experts, from mlp_layer_types."""
    kinds = read_kinds(config, {"dense": "dense", "sparse": "sparse"}, "mlp_layer_types", n_layer=n_layer)
    return [kind == "sparse" for kind in kinds]


def weights_norm_note(norm: bool) -> str:
    """The note on expert_weights_norm for architectures in which llama.cpp always does the opposite."""
    return f"llama.cpp takes norm_topk_prob = {str(not norm).lower()}: it has no key for it in this architecture"


def read_expert_groups(config: Config, n_expert: int, n_used: int, *keys: str) -> tuple[int, int]:
    """The number of expert groups and of those a token uses; 1, 1 if it uses all, as llama.cpp expects.

    keys: spellings of n_group
    """
    keys = keys or ("n_group",)
    n_group = config.integer(*keys, default=1, maximum=n_expert)
    n_group_used = config.integer("topk_group", default=1, maximum=n_group)
    if n_group_used == n_group:
        return 1, 1
    if n_expert % n_group or n_expert < 2 * n_group:
        raise config.wrong(config.named(*keys), f"groups of two or more of the {n_expert} experts")
    if n_used > n_expert // n_group * n_group_used:
        raise config.wrong("topk_group", f"groups that have the {n_used} experts of a token")
    return n_group, n_group_used
