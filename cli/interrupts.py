"""Ctrl-C, whatever Python makes of it on its way."""


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that an error stands for: Python 3.11 turns one inside `__set_name__`, where classes and with them
    modules are made, into a RuntimeError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error
