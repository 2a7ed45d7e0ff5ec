"""From the name of a model to a loaded one: downloads, conversion, quantization and loading in a row, and their caches.

models                  resolves MODEL to a file, and loads it, with a draft model
by_name                 resolves a name on a hub: from the caches, downloaded, or converted
conversions, cached_models  conversions of named checkpoints; all kept conversions
recent, present, header, removal  recently run files; lists and removal of models on this machine
checkpoint_source       a checkpoint that is quantized while it is converted
importance, target, max_kld  measurements by `infer` for `quant`
config_shapes, published_sizes  model sizes for `bench --shape`, from configs of published models
"""
