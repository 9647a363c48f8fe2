"""What the doctor found out about one thing."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from cudnn_bindgen.codegen.text import printable

Verdict: TypeAlias = Literal["ok", "warn", "problem"]

# Longer texts are what a compiler or a linker printed.
_LONGEST = 500


class Finding(NamedTuple):
    """A thing, what was found, whether that is right, and what to do if it is not."""

    what: str
    found: str
    verdict: Verdict = "ok"
    remedy: str = ""


def hung(what: str, answer: Mapping[str, object]) -> list[Finding]:
    """Return the finding for what a process was asked, if it hung."""
    if "hangs" not in answer:
        return []
    remedy = "run doctor once more; if it hangs again, look at what it waits for, as py-spy shows"
    return [Finding(what, str(answer["error"]), "problem", remedy)]


def tidied() -> Callable[[Finding], Finding]:
    """Return what takes out of findings who the user is, and makes them fit for a terminal."""
    home = os.environ.get("HOME", "").rstrip("/")
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container whose user has no name
        user = ""
    # Such as /tmp/pip-jane-1; root is nobody's name.
    name = re.compile(rf"(?<![a-zA-Z0-9]){re.escape(user)}(?![a-zA-Z0-9])")

    def tidy(text: str) -> str:
        if home:
            text = re.sub(rf"{re.escape(home)}(?=[/:;,\s]|$)", "~", text)
        text = re.sub(r"/(home|Users)/[^/\s:;,]+", "~", text)
        text = name.sub("USER", text) if len(user) > 2 and user != "root" else text
        text = printable(" ".join(text.split()))
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

    return lambda one: Finding(one.what, tidy(one.found), one.verdict, tidy(one.remedy))
