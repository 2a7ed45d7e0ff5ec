"""The user's folders of this program; platformdirs says where such folders are on a system."""

from pathlib import Path


def cache_folder() -> Path:
    """Compiled kernels, converted and random models: what can be made again."""
    from platformdirs import user_cache_path

    return user_cache_path("hybrid")


def former_cache_folders() -> list[Path]:
    """Where earlier versions kept such files; nothing is read from there."""
    from platformdirs import user_cache_path

    return [user_cache_path("hybrid-lm")]


def state_folder() -> Path:
    """History and kept chats, which cannot be made again."""
    from platformdirs import user_state_path

    return user_state_path("hybrid")
