"""The documentation site: every page of the repository, by the links that the code host follows.

``nox -s docs`` builds it; a warning, such as a broken link, is an error.
"""

import re

from click import Context
from sphinx.application import Sphinx

from cudnn_bindgen import __version__

project = "cudnn-bindgen"
version = release = __version__
# No dates and no paths: the same pages give the same site.
html_title = f"{project} {version}"
html_theme = "furo"  # the reader's own fonts; tests/test_docs.py looks for what is not here
html_copy_source = html_show_copyright = False
html_extra_path = ["index.html"]  # leads to README.html

# Pages link to each other by their paths in the repository, so its top is the top of the site.
root_doc = "README"
include_patterns = ["**.md"]
exclude_patterns = [".*", "build", "src", "tests/data/cases/printed"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
myst_heading_anchors = 4  # as the code host makes them
smartquotes = False  # -- is no dash
default_role = "literal"  # docstrings mark code by single backticks
autodoc_typehints = "none"
suppress_warnings = ["misc.highlighting_failure"]  # "…" in code that is cut


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Make the sidebar of the lists of pages in the README, which readers of the code host have."""
    if page != root_doc:
        if page.endswith("/README"):  # of a folder: other pages link to it
            app.env.metadata[page]["orphan"] = "true"
        return
    for caption, pages in re.findall(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", source[0], re.MULTILINE):
        paths = "\n".join(re.findall(r"\]\(([\w/.-]+)\.md\)", pages))
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{paths}\n```\n"


def escape(app: Sphinx, context: Context, lines: list[str]) -> None:
    """Keep stars in the help of commands: it is plain text."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Sphinx) -> None:
    """Add what is above: Sphinx calls this."""
    app.connect("source-read", add_navigation)
    for part in ("description", "epilog"):
        app.connect(f"sphinx-click-process-{part}", escape)
