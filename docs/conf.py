"""How Sphinx builds the documentation: `make docs`."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Windvane"
author = "the Windvane contributors"
copyright = "the Windvane contributors"
release = version_of("windvane")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "generated_tables",
    "plain_docstrings",
]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
nitpick_ignore_regex = [("py:class", r".*")]  # types of other packages in signatures
smartquotes = False  # quotes and dashes stand as they are written
suppress_warnings = ["misc.highlighting_failure"]  # of JSON in quotes over several lines

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88

copybutton_prompt_text = r">>> |\.\.\. |\$ |> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"Windvane {release}"
html_static_path = ["_static"]
html_css_files = ["windvane.css"]
html_copy_source = False
html_show_sphinx = False
