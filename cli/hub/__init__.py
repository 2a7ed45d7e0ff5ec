"""Models by name: repositories of a hub of Hugging Face.

names, nearby           what is a name; names that may have been meant
type_tags               the weight type that a file's name states
repository, choice      what a repository holds; which of its files is wanted
folders                 the hub's cache on this disk, read without asking anybody
api, download           requests; files brought here, resumed and verified
checkpoints, conversions  what a conversion reads; conversions that are kept
models                  a name becomes a file: from the caches, or downloaded, or converted
header, present, removal  what is here, listed and removed
"""
