"""A hub of Hugging Face: models by name, and what this disk has of it. Nothing is converted here (../pipeline).

names, nearby           what is a name; names that may have been meant
type_tags               the weight type that a file's name states
repository, choice      what a repository holds; which of its files is wanted
checkpoints             which files a conversion reads
folders                 the hub's cache on this disk, read without asking anybody
api, download           requests; files brought here, resumed and verified
"""
