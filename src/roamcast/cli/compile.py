"""`roamcast compile`."""

from __future__ import annotations

__all__ = ["compile"]


def compile() -> None:
    """Compile what is compiled at its first use, so that nothing waits for it later. `make install` does this.

    Example: roamcast compile
    """
    from roamcast.bind import warm_up as bind
    from roamcast.match import warm_up as match

    bind.warm_up()
    match.warm_up()
