"""How Sphinx builds the documentation (``make docs``): the site lands in docs/_build/html."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

from boundlab.version import VERSION  # noqa: E402

project = "boundlab"
copyright = "the authors of boundlab"
release = version = VERSION

extensions = [
    "myst_nb",  # Markdown, and notebooks as they were stored
    "sphinx.ext.autodoc",
    "parameters",
    "command_line",
    "notebooks",
]
exclude_patterns = ["_build", "extensions", "**/.ipynb_checkpoints"]
nitpicky = True

# Markdown: headings can be linked to as on GitHub
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "fieldlist"]

# notebooks in docs/gallery/ hold their outputs: nothing is run by a build
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True

# reference from docstrings
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # what torch says of its methods is said there
autodoc_typehints = "description"
autodoc_typehints_description_target = "all"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
nitpick_ignore_regex = [
    # of other projects: named, but not linked, so that a build needs no network
    (r"py:.*", r"(?!boundlab\.)\w+\..+|Tensor|Module"),
    # internal types that signatures name, with their module or, where that is not imported,
    # without; a role in a docstring that names anything else must lead somewhere
    (r"py:class", r"boundlab\..+"),
    (r"py:class", r"Arithmetic|Captured|Formula|IdentityForm|Mode|Network|Node|PerSample"),
    (r"py:class", r"(Window)?Transpose"),
]
smartquotes = False  # flags are --flags
highlight_language = "text"  # of indented blocks

html_theme = "furo"
html_title = f"boundlab {VERSION}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
pygments_style = "default"
pygments_dark_style = "github-dark"
