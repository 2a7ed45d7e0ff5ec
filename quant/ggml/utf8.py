"""Text of files that other programs wrote."""

_MARK = "\ufeff"


def decoded(raw: bytes, errors: str = "strict") -> str:
    """The text of a whole file in UTF-8, without the byte order mark that some editors put at its beginning.

    UnicodeDecodeError, unless `errors` says otherwise; its `start` counts the bytes of `raw`.
    """
    return raw.decode("utf-8", errors).removeprefix(_MARK)
