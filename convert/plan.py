"""The plan of a conversion: everything is decided and checked before the first byte is written."""

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybrid.quant.ggml.errors import CheckpointError, Remedy, UnsupportedError, UsageError, shown
from hybrid.quant.ggml.metadata import full_key
from hybrid.quant.ggml.rotation import OUTPUT
from hybrid.quant.ggml.scales import TENSOR_EXTRA
from hybrid.quant.ggml.split import SplitWriter
from hybrid.quant.ggml.types import QUANTIZATION_VERSION, FileType, GGMLType, ValueType, row_nbytes

from .architectures import ARCHITECTURES, Family, Row
from .architectures.heads import MOST_HEADS
from .architectures.wrappers import REFUSED, WRAPPERS
from .checkpoint import Checkpoint, Config, Dtype, StoredTensor, mxfp4
from .checkpoint.beside import beside
from .checkpoint.dequantized import DequantizedTensor, values_only
from .checkpoint.folded import Folding
from .checkpoint.integers import as_integers
from .checkpoint.product import product
from .checkpoint.quantized import method, original_names, plain
from .config_fields import notes as field_notes
from .config_fields import refuse_what_none_can, tower_notes
from .general import general_keys, output_name, sampling_keys
from .kept_blocks import factors, inputs_are_exact, kept
from .outtype import automatic, outtype, stated_type, weight_type
from .planned import ConvertPlan, PlannedTensor
from .prompts import prompt_keys
from .reranker import TEMPLATE, as_reranker, is_reranker
from .sentence_modules import DenseModule, read_dense, read_pooling
from .sources import choose, in_reading_order, some
from .text_model import text_model
from .tokenizers import read_vocabulary
from .tokenizers.special import stated_ids
from .tokenizers.vocabulary import KeyValue
from .vision import TOWERS, PictureConfig

# Buffers that old checkpoints hold and that are computed from the config.
_DROPPED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq", ".attn.masked_bias", ".attn.bias")


@dataclass(frozen=True)
class TensorJob:
    """A planned tensor with its sources."""

    planned: PlannedTensor
    row: Row
    stored: tuple[StoredTensor, ...]


_ENDING = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)$")


@dataclass(frozen=True)
class PreparedConversion:
    """A plan, and all that is needed to carry it out."""

    plan: ConvertPlan
    config: Config
    family: Family
    key_values: list[KeyValue]
    jobs: list[TensorJob]

    def writer(self, path: Path, max_bytes: int = 0) -> SplitWriter:
        """A writer with all metadata and tensors, for `path`, in files of at most `max_bytes` of tensors; 0: in one
        file."""
        return _writer(path, self.family.arch, self.key_values, [job.planned for job in self.jobs], max_bytes)


def family_of(config: Config) -> tuple[type[Family], str]:
    """The family of the config's `architectures`, and that name. UnsupportedError: unknown."""
    names = config.get("architectures")
    if names is None and "ssm_cfg" in config:  # the original checkpoints of state-spaces have no name
        names = [config.section("ssm_cfg").string("layer", default="Mamba").removesuffix("1") + "LMHeadModel"]
        names = ["Mamba2ForCausalLM"] if names == ["Mamba2LMHeadModel"] else names
    if names is None:
        config.string("architectures")  # raises the error for a missing key
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise config.wrong("architectures", "a list of names")
    if wrapper := WRAPPERS.get(names[0]):
        return ARCHITECTURES[wrapper.text_class(config)], wrapper.name
    if names[0] in REFUSED:
        raise UnsupportedError(f"{config.where}: the architecture {names[0]} is not supported: {REFUSED[names[0]]}.")
    if names[0] not in ARCHITECTURES:
        near = ", ".join(near_architectures(names[0]))
        raise UnsupportedError(
            f"{config.where}: the architecture {shown(names[0])} is not supported{near and f'; near it are {near}'}.",
            remedy=Remedy.LIST_ARCHITECTURES,
        )
    return ARCHITECTURES[names[0]], names[0]


def near_architectures(name: str) -> list[str]:
    """Known names like this one, without the endings that most names have."""
    stems: dict[str, list[str]] = {}
    for known in (*ARCHITECTURES, *WRAPPERS):
        stems.setdefault(_stem(known), []).append(known)
    found = difflib.get_close_matches(_stem(name), stems, n=3, cutoff=0.6)
    return [known for stem in found for known in stems[stem]][:3]


def _stem(name: str) -> str:
    return _ENDING.sub("", name).lower()


def has_tower(source: Path | str) -> bool:
    """Whether a checkpoint has a vision tower of a known kind."""
    checkpoint = Checkpoint(source)
    names = checkpoint.config.get("architectures")
    tower = TOWERS.get(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else None
    if tower is None or not checkpoint.config.section("vision_config").data:
        return False
    return any(name.startswith(tower.taken) for name in original_names(checkpoint.tensors, checkpoint.config))


def in_tower(source: Path | str) -> Callable[[str], bool] | None:
    """Whether a tensor of a checkpoint is of its vision tower; None: it has none."""
    if not has_tower(source):
        return None
    family = prepare_tower(source).family
    return lambda name: not family.leaves_out(name)


def prepare_tower(
    source: Path | str,
    *,
    file_type: FileType | str = "auto",
    metadata: Path | None = None,
    model_name: str | None = None,
) -> PreparedConversion:
    """As `prepare`, of a checkpoint's vision tower."""
    try:
        return prepare(source, file_type=file_type, metadata=metadata, model_name=model_name, tower=True)
    except (CheckpointError, UnsupportedError) as err:
        raise type(err)(str(err), remedy=err.remedy or Remedy.WITHOUT_VISION, value=err.value) from None


def prepare(
    source: Path | str,
    *,
    file_type: FileType | str = "auto",
    tokenizer: Path | None = None,
    vocab_only: bool = False,
    metadata: Path | None = None,
    model_name: str | None = None,
    with_vocabulary: bool = True,
    heads: bool = True,
    keep: bool | None = None,
    tower: bool = False,
    elsewhere: Callable[[str], bool] | None = None,
) -> PreparedConversion:
    """Reads configuration, headers and tokenizer, checks them, and decides on every key and tensor. keep: matrices in
    4-bit floats remain so; None: if file_type is auto or NVFP4. tower: of the vision tower instead of the text model.
    elsewhere: whether another file has a tensor, which no note then says is left out."""
    wanted = outtype(file_type) if isinstance(file_type, str) else file_type
    keep = wanted in (None, FileType.NVFP4) if keep is None else keep
    checkpoint = Checkpoint(source)
    config = checkpoint.config
    text_type, architecture = family_of(config)
    text_type, config = as_reranker(checkpoint, config, text_type, tokenizer or checkpoint.folder)
    if tower and architecture not in TOWERS:
        raise UnsupportedError(f"{config.where}: {shown(architecture)} has no vision tower that is supported.")
    family_type: type[Family] = TOWERS[architecture] if tower else text_type
    config = PictureConfig.of(checkpoint, config) if tower else config
    refuse_what_none_can(config, family_type)
    quantized = method(config)
    tensors: Mapping[str, StoredTensor] = {} if vocab_only else checkpoint.tensors
    tensors = plain(tensors, config)
    tensors = checkpoint.folding.checked(tensors, keep=keep) if checkpoint.folding else tensors
    tensors = tensors if keep else values_only(tensors)
    config, tensors, left_out = text_model(checkpoint, architecture, family_type, config, tensors)
    stored, family, lacking = _with_whole_heads(tensors, config, family_type, MOST_HEADS if heads else 0)
    if checkpoint.folding and checkpoint.folding.has_grouped_columns:
        family = family.with_grouped_columns()
    notes = [*family.notes(), *left_out]
    if lacking:
        notes.append(f"a head that guesses tokens ahead is left out: the checkpoint lacks {some(lacking)} of it")
    chosen = [] if vocab_only else list(choose(family, stored, notes))
    dense = [] if tower else read_dense(checkpoint)
    dense_keys = family.dense_keys([(one.n_in, one.n_out) for one in dense]) if dense else []
    if dense_keys is None:
        notes.append(f"{', '.join(one.folder for one in dense)} left out: vectors are taken before these layers")
        dense, dense_keys = [], []
    stored |= {f"{one.folder}/{name}": tensor for one in dense for name, tensor in one.tensors.items()}
    chosen += [] if vocab_only else list(_dense_rows(dense))
    targets = {row.target for row, _ in chosen}
    sources = (tensor for _, some in chosen for tensor in some)
    if wanted is None or wanted is FileType.NVFP4:
        kind = family.usual_type or automatic(sources)
    else:
        kind = wanted
    jobs = [job for row, tensors in in_reading_order(chosen, stored) for job in _jobs(row, tensors, kind, targets)]
    notes += _left_out(family, {} if tower else tensors, quantized, jobs, elsewhere)
    planned = [job.planned for job in jobs]
    if (
        wanted is FileType.NVFP4
        and not vocab_only
        and not tower
        and not any(one.type is GGMLType.NVFP4 for one in planned)
    ):
        raise UnsupportedError(
            f"{shown(checkpoint.folder)} has no matrix in NVFP4 that the file could keep.", remedy=Remedy.OUTTYPE
        )
    kind = stated_type(kind, {tensor.type for tensor in planned})
    pooling = None if tower or family.pooling else read_pooling(checkpoint)
    vocabulary = None
    if with_vocabulary and not tower:
        vocabulary = read_vocabulary(
            tokenizer or checkpoint.folder,
            config,
            family.n_vocab,
            preferred_pre=family.pre,
            hint=family.tokenizer_hint,
            goes_on=family.generates and pooling is None and not family.pooling,
            checkpoint=checkpoint.folder,
        )
        notes += vocabulary.notes
        if family.pooling and is_reranker(checkpoint):
            vocabulary.chat_templates["rerank"] = TEMPLATE
        if family.prompts_by_code and not vocabulary.chat_templates:
            notes.append(
                "the file has no chat template: code of the repository writes prompts, which is not run. A file "
                "chat_template.jinja in the folder would be taken"
            )
        if family.ends_by_config:
            vocabulary.ids |= {kind: i for kind, i in stated_ids(config, family.n_vocab).items() if kind == "eos"}
    prompts = [] if tower else list(prompt_keys(checkpoint, config))  # reads the config: before the notes on its fields
    if isinstance(config, PictureConfig):
        notes += tower_notes(config, family, text_type)
    else:
        notes += field_notes(config, family)
    general, facts = general_keys(checkpoint, planned, metadata, model_name, notes)
    more = [*dense_keys, *([] if pooling is None else [("pooling_type", pooling)])]
    key_values: list[KeyValue] = [
        ("general.type", family.general_type, ValueType.STRING),
        *_merge_sampling(sampling_keys(checkpoint), general),
        *((full_key(family.arch, key), value, None) for key, value in [*family.keys(kind), *more]),
        ("general.quantization_version", QUANTIZATION_VERSION, ValueType.UINT32),
        *_rotation_keys(checkpoint.folding, family, jobs),
        *_exact_input_keys(jobs),
        *(vocabulary.key_values() if vocabulary else ()),
        *prompts,
    ]
    output = Path(f"{output_name(facts, None if vocab_only else kind.name)}.gguf")
    plan = ConvertPlan(
        source=Path(source),
        output=output,
        architecture=architecture,
        file_type=kind,
        n_params=sum(math.prod(t.shape) for t in planned),
        nbytes=_writer(output, family.arch, key_values, planned).nbytes,
        notes=tuple(notes),
        metadata={"general.architecture": family.arch} | {key: value for key, value, _ in key_values},
        tensors=planned,
    )
    return PreparedConversion(plan, config, family, key_values, jobs)


def _dense_rows(dense: Sequence[DenseModule]) -> Iterator[tuple[Row, tuple[StoredTensor, ...]]]:
    """The rows and sources of the dense layers after the pooling, by llama.cpp's names."""
    for i, one in enumerate(dense, 2):
        for name, tensor in one.tensors.items():
            yield Row(f"dense_{i}.{name}", tensor.shape, (f"{one.folder}/{name}",)), (tensor,)


def _writer(
    path: Path, arch: str, key_values: Sequence[KeyValue], planned: Sequence[PlannedTensor], max_bytes: int = 0
) -> SplitWriter:
    writer = SplitWriter(path, arch, max_bytes=max_bytes)
    for key, value, kind in key_values:
        writer.add(key, value, kind)
    for tensor in planned:
        writer.declare(tensor.name, tensor.shape, tensor.type)
    return writer


def _exact_input_keys(jobs: Sequence[TensorJob]) -> Iterator[KeyValue]:
    """The keys by which llama.cpp does not round the inputs of these matrices to 4 bits, on processors that can."""
    names = sorted(job.planned.name for job in jobs if inputs_are_exact(job.stored))
    if names:
        yield from ((f"{TENSOR_EXTRA}name", names, None), (f"{TENSOR_EXTRA}prec_a4", [False] * len(names), None))


def _rotation_keys(folding: Folding | None, family: Family, jobs: Sequence[TensorJob]) -> Iterator[KeyValue]:
    """The keys that say how the checkpoint's weights are rotated, if they are."""
    if folding is not None and jobs:
        targets = {job.row.sources[0]: job.row.target for job in jobs if job.row.sources}
        tied = OUTPUT not in targets.values()
        yield from folding.key_values(family.arch, lambda name: targets.get(family.canonical(name)), tied)


def _left_out(
    family: Family,
    tensors: Mapping[str, StoredTensor],
    quantized: str,
    jobs: Sequence[TensorJob],
    elsewhere: Callable[[str], bool] | None,
) -> Iterator[str]:
    """Notes on what the file does not keep of the checkpoint."""
    n_quantized = sum(isinstance(tensor, DequantizedTensor) for tensor in tensors.values())
    if n_quantized:
        made = [job for job in jobs if any(isinstance(tensor, DequantizedTensor) for tensor in job.stored)]
        same = [job.planned.type.name for job in made if _has_same(job)]
        kept_as = f"{len(same)} of {len(made)} tensors keep their {' and '.join(sorted(set(same)))} blocks"
        values = "the file has the values they stand for" if not same else f"in the file {kept_as}"
        yield f"{n_quantized} matrices are quantized ({quantized}): {values}"
    n_blocks = sum(
        tensor.block_type is not None and not isinstance(tensor, DequantizedTensor) for tensor in tensors.values()
    )
    if n_blocks:
        yield f"{n_blocks} tensors of experts are {mxfp4.METHOD}, and stay so whatever the type of the file"
    dropped = [name for name in tensors if family.leaves_out(name) and not (elsewhere and elsewhere(name))]
    if dropped:
        yield f"{some(dropped)} left out: no part of the language model itself"


def _has_same(job: TensorJob) -> bool:
    """Whether a quantized tensor of the checkpoint has its blocks or, in another type, its values in the file."""
    return job.stored[0].block_type is not None or job.planned.type is _exact_type(job.row, job.stored)


def _merge_sampling(sampling: list[KeyValue], general: list[KeyValue]) -> list[KeyValue]:
    """The other keys, with general.sampling.* of --metadata replacing the checkpoint's in the same position."""
    given = {pair[0]: pair for pair in general if pair[0].startswith("general.sampling.")}
    kept = [given.pop(pair[0], pair) for pair in sampling]
    rest = [pair for pair in general if not pair[0].startswith("general.sampling.")]
    return [*kept, *given.values(), *rest]


def _with_whole_heads(
    tensors: Mapping[str, StoredTensor], config: Config, family_type: type[Family], most: int
) -> tuple[dict[str, StoredTensor], Family, list[str]]:
    """`_canonical` tensors, the family with at most `most` guessing heads, and what the next head lacks. A head counts
    only if the checkpoint has all of it: tools that fine-tune and quantize leave some of its tensors."""
    stored = _canonical(tensors, config, family_type, most)
    family = _read(family_type, config, stored, most).settled(stored)
    rest = {row.target for row in family.with_heads(0).rows()} if family.n_heads_ahead else set()
    for n in range(family.n_heads_ahead):
        own = [row for row in family.with_heads(n + 1).rows() if row.target not in rest]
        lacking = [name for row in own for name in row.sources if name not in stored]
        if lacking:
            return *_with_whole_heads(tensors, config, family_type, n)[:2], lacking
        rest |= {row.target for row in own}
    return stored, family, []


def _read(family_type: type[Family], config: Config, tensors: Mapping[str, StoredTensor], most: int) -> Family:
    """The family, with at most `most` guessing heads."""
    family = family_type.read(config, {name: tensor.shape for name, tensor in tensors.items()})
    return family.with_heads(most)


def _canonical(
    tensors: Mapping[str, StoredTensor], config: Config, family_type: type[Family], most: int
) -> dict[str, StoredTensor]:
    """The checkpoint's tensors in reading order, under the family's names."""
    family = _read(family_type, config, tensors, most)
    renamed: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(_DROPPED) or family.leaves_out(name):
            continue
        tensor = tensor if tensor.shape else replace(tensor, shape=(1,))
        canonical = family.canonical(name)
        parts = list(family.parts(canonical, tensor.shape)) if isinstance(tensor.dtype, Dtype) else []
        replacements = {part.name: tensor.part(part.start, part.shape) for part in parts} or {canonical: tensor}
        for key, value in replacements.items():
            if key in renamed:
                raise CheckpointError(f"{shown(renamed[key].name)} and {shown(name)} are the same tensor. Keep one.")
            renamed[key] = value
    return renamed


def _jobs(row: Row, tensors: tuple[StoredTensor, ...], kind: FileType, taken: Collection[str]) -> Iterator[TensorJob]:
    """The tensor of a row, and the tensors of factors that its kept blocks need. taken: names of rows."""
    tensors = kept(row, tensors, taken)
    yield _job(row, tensors, kind)
    for name, values in factors(row, tensors):
        yield _job(Row(name, values.shape, (), constant=values), (), kind)


def _exact_type(row: Row, tensors: tuple[StoredTensor, ...]) -> GGMLType | None:
    """The type that holds exactly the values of a row's only source, unless a transform changes its blocks."""
    only = tensors[0] if len(tensors) == 1 else None
    moves_blocks = row.transform is not None and (row.transform.arithmetic or row.transform.along != "rows")
    return only.exact if isinstance(only, DequantizedTensor) and not moves_blocks else None


def _job(row: Row, tensors: tuple[StoredTensor, ...], kind: FileType) -> TensorJob:
    names = tuple(tensor.name for tensor in tensors)
    if row.product:
        tensors = (product(*tensors),)
    if row.beside:
        tensors = (beside(*tensors),)
    tensors = tuple(map(as_integers, tensors)) if row.integers else tensors
    blocks = {tensor.block_type for tensor in tensors}
    tensor_type = blocks.pop() if len(blocks) == 1 else None
    tensor_type = tensor_type or _exact_type(row, tensors)
    if tensor_type is None:
        tensor_type = weight_type(row.target, row.shape, kind) if row.type is None else row.type
    if math.prod(row.shape) == 0:
        raise UsageError(f"{row.target} would be empty.")
    nbytes = math.prod(row.shape[:-1]) * row_nbytes(tensor_type, row.shape[-1])
    planned = PlannedTensor(row.target, row.shape, tensor_type, names, nbytes)
    return TensorJob(planned, row, tensors)
