"""Access to a Hugging Face hub: models by name, the local cache, downloads. Conversion is in ../pipeline.

names, nearby           parsing of names; suggestions for misspelt names
type_tags               the weight type in a file's name
repository, choice      contents of a repository; the choice of a file
checkpoints             files that a conversion reads
folders                 the hub's cache on this disk, without network access
api, download           requests; downloads, resumed and verified
"""
