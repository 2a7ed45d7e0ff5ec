"""Errors that a user can cause. Each message is one line: object, found, expected, what to do.

A message states facts, and advice that holds for every program that uses the library ("Convert the model again.").
Advice for one program only (an option of the command line, a command of the chat, a field of a request) is a `Remedy`:
the error carries it, and the program puts it into words (cli/remedies.py).

The command line prints a `HybridError` as `error: <message> <remedy>` and exits with `exit_code`; any other exception
is a bug of ours and keeps its traceback.
"""

from enum import StrEnum


class Remedy(StrEnum):
    """Advice. A comment names the value, if any, that the error carries as `value`."""

    # the model and its memory
    LARGER_CONTEXT = "larger_context"
    SMALLER_CONTEXT = "smaller_context"
    SMALLER_MEMORY = "smaller_memory"  # a smaller context, or fewer sequences
    LESS_MEMORY = "less_memory"  # a smaller context, or a smaller file
    FEWER_KEPT_TOKENS = "fewer_kept_tokens"  # or a larger context
    WITHOUT_CONTEXT_SHIFT = "without_context_shift"  # or a larger context
    SEPARATE_ADAPTER = "separate_adapter"  # an adapter was given as the model
    EMBEDDINGS = "embeddings"  # the model makes embeddings and no text
    WITHOUT_TEMPLATE = "without_template"
    # states
    WITHOUT_STATE = "without_state"
    KV_TYPE = "kv_type"  # value: the type that the file has
    SAY_IF_ROTATED = "say_if_rotated"
    KV_TYPE_OR_WITHOUT_STATE = "kv_type_or_without_state"  # value: the type that the file has
    STATE_IS_COMPLETION = "state_is_completion"  # value: the file
    ONE_SEQUENCE = "one_sequence"
    GENERATE_ONE_TOKEN = "generate_one_token"
    CHECKPOINTS = "checkpoints"  # memory for them
    # conversations
    SHORTER_CONVERSATION = "shorter_conversation"  # or a larger context
    CONTEXT_SHIFT = "context_shift"  # or a shorter conversation, or a larger context
    LIST_TURNS = "list_turns"
    SWITCH_BRANCH = "switch_branch"  # value: the name
    FORK_BRANCH = "fork_branch"  # value: the name
    # measuring
    SOMETHING_TO_MEASURE = "something_to_measure"
    KL_DIVERGENCE_BASE = "kl_divergence_base"
    POOLING = "pooling"
    TRUNCATE = "truncate"
    TRUNCATE_OR_LARGER_CONTEXT = "truncate_or_larger_context"
    # quantizing
    ALLOW_REQUANTIZE = "allow_requantize"
    IMATRIX = "imatrix"  # or another type
    MAKE_IMATRIX = "make_imatrix"
    IMATRIX_PATTERNS = "imatrix_patterns"
    IMATRIX_OF_FILE = "imatrix_of_file"  # of a GGUF file: a checkpoint has none
    SAME_TEXT = "same_text"  # or begin anew
    TENSOR_TYPE = "tensor_type"  # value: PATTERN=TYPE
    LIST_TENSORS = "list_tensors"
    LIST_KEYS = "list_keys"  # value: the file
    MAKE_HASHES = "make_hashes"
    MAKE_ADAPTER = "make_adapter"
    SERVED_ADAPTER = "served_adapter"  # an activated adapter
    ADAPTER_AT_RUN_TIME = "adapter_at_run_time"
    # converting
    QUANTIZE = "quantize"
    OUTTYPE = "outtype"
    WITHOUT_VISION = "without_vision"
    TOKENIZER = "tokenizer"  # of another model
    BASE_MODEL = "base_model"  # of an adapter
    LIST_ARCHITECTURES = "list_architectures"
    VERIFY = "verify"
    CONVERT_TO_FILE = "convert_to_file"  # value: the folder or name of the checkpoint
    # models by name, and local models
    WITHOUT_NETWORK = "without_network"  # local models run
    DOWNLOADED = "downloaded"  # a local model
    DISK_ROOM = "disk_room"
    LIST_MODELS = "list_models"
    SEE_MODELS = "see_models"  # nothing of this name is in a cache
    IN_CACHES_ONLY = "in_caches_only"  # a file of the user's own was to be removed


class HybridError(Exception):
    """Base of all errors caused by input: files, checkpoints, options, states.

    `str()` is the fact. remedy, value: for the program that shows it.
    """

    exit_code = 1

    def __init__(self, message: object = "", *, remedy: Remedy | None = None, value: object = "") -> None:
        super().__init__(message)
        self.remedy, self.value = remedy, str(value)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback: the error is in the input, not in the code."""
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


class UsageError(HybridError):
    """The command or the call is wrong (exit code 2)."""

    exit_code = 2


class FormatError(HybridError):
    """A file is damaged, truncated, or of another format."""


class CheckpointError(HybridError):
    """A Hugging Face checkpoint is incomplete, or contains too much or something that cannot be converted."""


class UnsupportedError(HybridError):
    """The input is valid, but this version does not support it."""


class TokenizerError(HybridError):
    """A vocabulary is missing, inconsistent, or of an unknown kind."""


class TemplateError(HybridError):
    """A chat template cannot be parsed or refuses the messages."""


class PictureError(HybridError):
    """A picture is damaged, too large, or of an unsupported type."""


class ClusterError(HybridError):
    """The workers of a cluster cannot be reached, or one of them does not fit the others."""


class StateError(HybridError):
    """A state file does not fit this model, or a sequence cannot do the requested operation."""


class LostStageError(HybridError):
    """A stage of a model (infer/stages) has gone, with its part of the memory."""


def shown(text: object, limit: int = 256) -> str:
    """`text` made safe for a one-line message: text from outside may contain newlines or terminal escapes."""
    raw = str(text)
    raw = raw if len(raw) <= limit else raw[: limit // 2] + "..." + raw[-limit // 2 :]
    if raw.isprintable():  # as nearly all are: converting a checkpoint asks it of every tensor's name
        return raw
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in raw)
