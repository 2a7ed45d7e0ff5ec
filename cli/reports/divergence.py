"""KL divergence for `hybrid perplexity`: writes the base, compares with it, prints llama-perplexity's report."""

from pathlib import Path
from typing import TYPE_CHECKING

from .. import console
from ..options.loading_options import chunks_together
from . import plots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hybrid.infer.evaluate.kl_statistics import KLDivergenceResult, KLDivergenceSoFar, MeanWithError
    from hybrid.infer.loading.options import LoadOptions

    from ..options.cluster_options import ClusterAddress


def write_base(
    model: Path | None,
    file: Path,
    base: Path,
    loading: "LoadOptions",
    workers: "ClusterAddress | None" = None,
    *,
    n_ctx: int,
    n_batch: int,
    chunks: int | None,
    as_json: bool,
) -> None:
    """Evaluates the text and writes the log-probabilities of all tokens to `base`."""
    from ..options import text_options
    from .measured_model import opened

    text = text_options.read_text(file)
    with opened(model, workers, loading, n_ctx=n_ctx, n_seq_max=chunks_together(n_ctx, n_batch)) as loaded:
        from hybrid.infer.evaluate.kl_divergence import write_base as library
        from hybrid.infer.text.encode import document_ids

        tokens = document_ids(loaded.tokenizer, text)
        last = 0.0

        def running(chunk: int, total: int, ppl: float) -> None:
            nonlocal last
            last = ppl
            if not as_json:
                console.out(f"[{chunk}]{ppl:.4f},", end="")

        n_chunks = library(loaded, base, tokens, n_ctx, chunks=chunks, progress=running)
    if as_json:
        console.out_json({"file": base, "ppl": last, "n_chunks": n_chunks, "n_ctx": n_ctx})
        return
    console.out(f"\nFinal estimate: PPL = {last:.4f}")
    console.note(f"{base}: log-probabilities of {n_chunks} chunks of {n_ctx} tokens")


def compare(
    model: Path | None,
    base: Path,
    loading: "LoadOptions",
    workers: "ClusterAddress | None" = None,
    *,
    n_batch: int,
    chunks: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compares the model with `base`, on the text in that file; `plot`: the picture to draw."""
    from hybrid.infer.evaluate.kl_divergence import BaseFile, kl_divergence

    from .measured_model import opened

    kept = BaseFile(base)
    n_seq = chunks_together(kept.n_ctx, n_batch)
    with opened(model, workers, loading, n_ctx=kept.n_ctx, n_seq_max=n_seq) as loaded:
        name = loaded.path.name
        if not as_json:
            console.out("chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence")

        def running(chunk: int, total: int, so_far: "KLDivergenceSoFar") -> None:
            console.out(
                f"{chunk:4d}    {so_far.ppl.value:9.4f} ± {so_far.ppl.error:9.4f}"
                f"    {so_far.ln_ratio.value:10.5f} ± {so_far.ln_ratio.error:10.5f}"
                f"    {so_far.kld.value:10.5f} ± {so_far.kld.error:10.5f}"
            )

        result = kl_divergence(loaded, kept, chunks=chunks, progress=None if as_json else running)
    if as_json:
        console.out_json(result)
    else:
        console.out("\n" + report(result))
    if plot is not None:
        plots.kl_divergence_by_token(plot, result.kld_by_token, f"{name} beside {base.name}")


def report(r: "KLDivergenceResult") -> str:
    """llama-perplexity's lines."""

    def line(name: str, e: "MeanWithError", digits: int = 6) -> str:
        return f"{name:<30}: {e.value:10.{digits}f} ± {e.error:10.{digits}f}"

    def percent(e: "MeanWithError") -> str:
        return f"{100 * e.value:6.3f} ± {100 * e.error:5.3f} %"

    def named(values: "Mapping[float, float]", what: str, scale: float, unit: str) -> list[str]:
        names: dict[float, str] = {100: "Maximum", 50: "Median ", 0: "Minimum"}
        return [f"{names.get(p, f'{p:4.1f}%  ')} {what}: {scale * value:10.6f}{unit}" for p, value in values.items()]

    return "\n".join(
        [
            "====== Perplexity statistics ======",
            line("Mean PPL(Q)", r.ppl),
            line("Mean PPL(base)", r.ppl_base),
            f"Cor(ln(PPL(Q)), ln(PPL(base))): {100 * r.correlation:6.2f}%",
            line("Mean ln(PPL(Q)/PPL(base))", r.ln_ratio),
            line("Mean PPL(Q)/PPL(base)", r.ratio),
            line("Mean PPL(Q)-PPL(base)", r.difference),
            "",
            "====== KL divergence statistics ======",
            f"Mean    KLD: {r.kld.value:10.6f} ± {r.kld.error:10.6f}",
            *named(r.kld_percentiles, "KLD", 1, ""),
            "",
            "====== Token probability statistics ======",
            f"Mean    Δp: {percent(r.p_change)}",
            *named(r.p_change_percentiles, "Δp", 100, "%"),
            f"RMS Δp    : {percent(r.p_change_rms)}",
            f"Same top p: {percent(r.same_top)}",
        ]
    )
