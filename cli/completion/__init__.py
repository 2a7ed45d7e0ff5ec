"""Completion of command lines in bash, zsh and fish.

    options       what commands and options there are, kept in a file so that no command has to be imported
    candidates    what may stand at the end of a line
    shells        the scripts that ask, and where they are installed
    answering     the answer to a shell that asks

Nothing here ever writes an error: it would land in somebody's prompt.
"""
