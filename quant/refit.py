"""Fits the scale of a block again to its final codes: smaller errors at the same size.

The encoders' searches fit the scales of groups, round them to multiples of the block's scale, and leave that unchanged;
IQ1, IQ2 and IQ3 then multiply it by a factor that is the same for all blocks. Weights are linear in a block's f16 scale
(and in the scale of its minima), so the best one for given codes is a least-squares fit. But the fit also makes weights
smaller: the remaining share of a block, <new, x> / <x, x>, is 1 - its relative error (0.92 in IQ2_XS, where the search
has 0.995). Errors of single weights largely cancel in a product, but a common loss adds up: predictions became worse
while errors became smaller (IQ2_XS on the trained Mamba: squares -7 %, KL divergence +5 %). So the fit keeps the
block's share, or 1 if the share is larger: least squares times a factor. It is used if the weighted error of the whole
block becomes smaller after rounding to f16; other blocks keep their bytes.
"""

import numpy as np

from .ggml.types import TRAITS, GGMLType

# First bytes of the f16 numbers that a block's weights are linear in. IQ1_S is left out: it gains nothing when its
# share is kept (KL divergence 0.578 -> 0.579 on the trained Mamba).
SCALES: dict[GGMLType, tuple[int, ...]] = {
    GGMLType.Q4_0: (0,), GGMLType.Q4_1: (0, 2), GGMLType.Q5_0: (0,), GGMLType.Q5_1: (0, 2), GGMLType.Q8_0: (0,),
    GGMLType.Q2_K: (80, 82), GGMLType.Q3_K: (108,), GGMLType.Q4_K: (0, 2), GGMLType.Q5_K: (0, 2), GGMLType.Q6_K: (208,),
    GGMLType.IQ4_NL: (0,), GGMLType.IQ4_XS: (0,), GGMLType.IQ2_XXS: (0,), GGMLType.IQ2_XS: (0,),
    GGMLType.IQ2_S: (0,), GGMLType.IQ3_XXS: (0,), GGMLType.IQ3_S: (0,),
}  # fmt: skip


def refit(kind: GGMLType, x: np.ndarray, raw: np.ndarray, importance: np.ndarray | None = None) -> None:
    """x f32 [row, n]; raw u8 [row, row_nbytes], which `formats.encode` made of it, is changed in place.

    importance f32 [n]: weight of the squared error of each column. Types without such a scale are unchanged.
    """
    if kind not in SCALES:
        return
    from .ggml.kernels import coding  # imports numba

    traits, offsets = TRAITS[kind], SCALES[kind]
    weights = np.ones(x.shape[1]) if importance is None else importance.astype(np.float64)
    w = np.broadcast_to(weights, x.shape).reshape(-1, traits.block)
    values = x.reshape(-1, traits.block).astype(np.float64)
    blocks = raw.reshape(-1, traits.nbytes)
    # what each scale contributes, when the other is zero
    parts = []
    for at in offsets:
        alone = blocks.copy()
        for other in offsets:
            if other != at:
                alone[:, other : other + 2] = 0
        parts.append(coding.decode(kind, alone, np.empty(values.shape, np.float32)).astype(np.float64))
    with np.errstate(all="ignore"):
        old = [np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0] for at in offsets]
        products = [[(w * a * b).sum(axis=1) for b in parts] for a in parts]
        wanted = [(w * values * a).sum(axis=1) for a in parts]
        power = (w * values * values).sum(axis=1)
        new = [
            (o.astype(np.float64) * factor).astype(np.float16)
            for o, factor in zip(old, _solved(products, wanted, power), strict=True)
        ]
        factors = [n.astype(np.float64) / o for n, o in zip(new, old, strict=True)]
        factors = [np.where(np.isfinite(f), f, 1.0) for f in factors]
        ones = [np.ones_like(f) for f in factors]
        better = _error(products, wanted, factors) < _error(products, wanted, ones)
    for at, n, o in zip(offsets, new, old, strict=True):
        chosen = np.where(better & np.isfinite(n) & (o != 0), n, o)
        blocks[:, at : at + 2] = np.ascontiguousarray(chosen)[:, None].view(np.uint8)


def _solved(products: list[list[np.ndarray]], wanted: list[np.ndarray], power: np.ndarray) -> list[np.ndarray]:
    """Factors of each part of a block; NaN where undetermined.

    They minimize the error among factors that keep the block's share: by Lagrange this is least squares times a factor,
    since the share and the error are linear in the same products `wanted`. power: of the block's weights.
    """
    if len(wanted) == 1:
        fitted = [wanted[0] / products[0][0]]
    else:
        (aa, ab), (_, bb) = products
        det = aa * bb - ab * ab
        det = np.where(det > 1e-9 * aa * bb, det, np.nan)
        fitted = [(wanted[0] * bb - wanted[1] * ab) / det, (wanted[1] * aa - wanted[0] * ab) / det]
    least = sum((f * v for f, v in zip(fitted, wanted, strict=True)), np.zeros_like(power))
    share = np.clip(sum(wanted, np.zeros_like(power)), least, np.maximum(least, power))
    return [f * (share / least) for f in fitted]


def _error(products: list[list[np.ndarray]], wanted: list[np.ndarray], factors: list[np.ndarray]) -> np.ndarray:
    """The weighted error of every block, minus the error of a block of zeros."""
    error: np.ndarray = -2 * sum((f * v for f, v in zip(factors, wanted, strict=True)), np.zeros_like(wanted[0]))
    for f, row in zip(factors, products, strict=True):
        for g, product in zip(factors, row, strict=True):
            error = error + f * g * product
    return error
