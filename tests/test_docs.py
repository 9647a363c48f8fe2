"""The site is built without a warning; what the pages name in code is there: files, tests."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from support.documents import TESTS

ROOT = TESTS.parent
PAGES = sorted(
    page
    for folder in (".", "docs", "benchmarks", "examples", "generated", "runtime", "tests", "tools")
    for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)
# A file of the repository: a folder at its top, and a name with an ending.
FILE = re.compile(
    r"`((?:codegen|commands|docs|doctor|examples|frontend|runtime|templates|tests|tools)/[\w./-]*\.\w+)`"
)
TEST = re.compile(r"`(test_\w+)`")
# What a browser would load from another host: in HTML, in styles, in scripts.
ELSEWHERE = re.compile(
    r"""<(?!a )[^>]*\s(?:src|href|data)=["']?(?:https?:)?//[^>]*"""
    r"""|(?:url\(|@import)\s*["']?(?:https?:)?//[^)]*"""
    r"""|(?:fetch|import|open)\(["'`](?:https?:)?//[^)]*"""
)


# Messages that a page explains: the first cell of a row. What differs in a message is cut out.
MESSAGE = re.compile(r"^\| `(.+?)` \|", re.MULTILINE)
DIFFERS = re.compile(r"…|expected |, got ")


@cache
def names_of_tests() -> set[str]:
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    found = {name for text in texts for name in re.findall(r"def (test_\w+)", text)}
    return found | {"test_aot_dispatch_dynamic"}  # PyTorch's


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in TEST.findall(text) if name not in names_of_tests()]
    assert not missing


def test_the_readme_has_a_place_for_each_page_of_docs() -> None:
    text = (ROOT / "README.md").read_text().partition("\n## Documentation\n")[2]
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert {*re.findall(r"\]\(docs/([\w-]+\.md)\)", text)} == pages


def test_each_message_that_is_explained_is_in_the_source() -> None:
    files = [*ROOT.glob("*.py")]
    for folder in ("codegen", "commands", "frontend", "runtime"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".pyx"}]
    # A literal may go on in the next line.
    source = re.sub(r"""["']\s*f?["']""", "", "".join(path.read_text() for path in files))
    messages = MESSAGE.findall((ROOT / "docs/troubleshooting.md").read_text())
    assert messages
    for message in messages:
        parts = [part.strip(" ,:;().") for part in DIFFERS.split(message)]
        assert max(map(len, parts)) >= 4
        assert not [part for part in parts if part not in source], message


@pytest.mark.long
def test_the_site_has_no_broken_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-c", ROOT / "docs"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", ROOT, site],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    texts = {
        path.relative_to(site): path.read_text()
        for path in site.rglob("*")
        if path.suffix in {".css", ".html", ".js"}
    }
    assert {page.relative_to(ROOT).with_suffix(".html") for page in PAGES} - {*texts} == {
        Path("tests/data/cases/printed/fenced.html")  # a graph in a page
    }
    assert not {path: found for path, text in texts.items() if (found := ELSEWHERE.findall(text))}


def test_what_comes_from_elsewhere_is_seen() -> None:
    for text in (
        '<script async src="https://cdn.example/a.js">',
        "<link rel=stylesheet href=//cdn.example/a.css>",
        "@import 'https://fonts.example/a.css'",
        "src: url(//fonts.example/a.woff2)",
        'await import("https://cdn.example/a.mjs")',
    ):
        assert ELSEWHERE.search(text)
    assert not ELSEWHERE.search('<a class="b" href="https://example"> url(data:image/svg+xml,//)')
