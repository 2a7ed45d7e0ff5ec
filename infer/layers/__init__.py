"""The layers that families are made of."""

from .affine_residual import AffineResidual
from .attention import Attention, EncoderAttention, Rope
from .banked_residual import BankedResidual, BankedStreams, Banks
from .base import KeptNorm, Layer, PostNorm, Sum
from .beside_experts import BesideExperts
from .carried_router import CarriedRouterExperts
from .compressed_attention import CompressedAttention, IndexSizes
from .convolved_attention import ConvolvedAttention
from .delta_net import GatedDeltaNet
from .differential_attention import BorrowedDifferential, DifferentialAttention
from .feed_forward import Clamp, FeedForward, GatedFeedForward, MixtureOfExperts, Situ
from .gated_memory import GatedMemoryUnit
from .gated_streams import GatedMixOfStreams, GatedResidual, GatedSizes
from .hyper_connections import HyperConnected, HyperSizes, LearnedMixOfStreams, MeanOfStreams
from .indexed import Choice, lists_of
from .indexed_attention import IndexedAttention
from .kept_rows import KeptRows
from .kimi_delta import KimiDelta
from .latent_attention import LatentAttention
from .lightning import LightningAttention
from .listed_attention import ListedAttention, Lists
from .mamba1 import Mamba1
from .mamba2 import Mamba2
from .mamba2_projected import ProjectedMamba2
from .mlstm import Mlstm
from .ngram_inputs import NgramInputs, Ngrams
from .parallel import NormedSum
from .per_layer_inputs import PerLayerGate, PerLayerInputs
from .pooled_latent import PooledLatentAttention, PoolIndex
from .pooling import Pooling, starts_of_groups
from .query_scale import QueryScale
from .rg_lru import RgLru
from .rwkv import ChannelMix, Rwkv6, Rwkv7
from .shared_keys import BorrowedKeys, NormedValues
from .shared_transformer import SharedTransformer
from .short_conv import ShortConv
from .streams import OnStreams, Streams

__all__ = [
    "AffineResidual",
    "Attention",
    "BankedResidual",
    "BankedStreams",
    "Banks",
    "BesideExperts",
    "BorrowedDifferential",
    "BorrowedKeys",
    "CarriedRouterExperts",
    "ChannelMix",
    "Choice",
    "Clamp",
    "CompressedAttention",
    "ConvolvedAttention",
    "DifferentialAttention",
    "EncoderAttention",
    "FeedForward",
    "GatedDeltaNet",
    "GatedFeedForward",
    "GatedMemoryUnit",
    "GatedMixOfStreams",
    "GatedResidual",
    "GatedSizes",
    "HyperConnected",
    "HyperSizes",
    "IndexSizes",
    "IndexedAttention",
    "KeptNorm",
    "KeptRows",
    "KimiDelta",
    "LatentAttention",
    "Layer",
    "LearnedMixOfStreams",
    "LightningAttention",
    "ListedAttention",
    "Lists",
    "Mamba1",
    "Mamba2",
    "MeanOfStreams",
    "MixtureOfExperts",
    "Mlstm",
    "NgramInputs",
    "Ngrams",
    "NormedSum",
    "NormedValues",
    "OnStreams",
    "PerLayerGate",
    "PerLayerInputs",
    "PoolIndex",
    "PooledLatentAttention",
    "Pooling",
    "PostNorm",
    "ProjectedMamba2",
    "QueryScale",
    "RgLru",
    "Rope",
    "Rwkv6",
    "Rwkv7",
    "SharedTransformer",
    "ShortConv",
    "Situ",
    "Streams",
    "Sum",
    "lists_of",
    "starts_of_groups",
]
