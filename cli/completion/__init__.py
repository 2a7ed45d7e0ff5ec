"""Completion of command lines in bash, zsh and fish.

    options       commands and their options, cached in a file so that no command must be imported
    candidates    completions for the end of a line
    shells        the shells' scripts, and where to install them
    reply         the answer to a shell

No error is ever printed here: it would land in the user's prompt.
"""
