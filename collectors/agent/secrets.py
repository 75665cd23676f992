"""Command lines without the secrets that people put in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
_WORD = r"(?:token|key|passw(?:or)?d|secret|credentials?)"
_OPTION = re.compile(rf"^(--?[\w.-]*{_WORD})(=.*)?$", re.IGNORECASE | re.DOTALL)
_ASSIGNMENT = re.compile(rf"^([\w.+-]*{_WORD}\w*)=.+$", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"(\w+://[^/\s:@]*):[^/\s@]+@")


def without_secrets(argv: Sequence[str]) -> list[str]:
    """``argv`` with the values of options like ``--api-key`` (and NAME_TOKEN=…, user:password@) replaced by ``***``."""
    out: list[str] = []
    hide = False
    for word in argv:
        if hide and not word.startswith("--"):
            out.append(HIDDEN)
            hide = False
            continue
        option = _OPTION.match(word)
        assignment = _ASSIGNMENT.match(word)
        hide = bool(option and option.group(2) is None)
        if option and option.group(2) is not None:
            out.append(f"{option.group(1)}={HIDDEN}")
        elif assignment:
            out.append(f"{assignment.group(1)}={HIDDEN}")
        else:
            out.append(_ADDRESS.sub(rf"\1:{HIDDEN}@", word))
    return out
