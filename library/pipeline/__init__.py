"""From what is named to what runs: downloads, conversion, quantization and loading in a row, and what is kept of them.

models                  MODEL becomes a file, and is loaded, with a smaller model that guesses
by_name                 a name becomes files: from the caches, or downloaded, or converted
conversions, cached_models  conversions of checkpoints by name; all conversions that are kept
recent, present, header, removal  files that were run lately; what is here, listed and removed
checkpoint_source       a checkpoint that is quantized while it is converted
importance, target, max_kld  what `infer` measures for `quant`
config_shapes, published_sizes  shapes to measure, by the configs of published models
"""
