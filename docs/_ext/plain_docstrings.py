"""Docstrings are plain text with `code` in backticks; this turns them into reStructuredText.

A line of an equation keeps its line. Markup characters that stand for themselves are escaped. In
signatures, the types of arrays have the short names that the source has for them.
"""

import re

import numpy.typing as npt
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

from windvane import types

CODE = re.compile(r"`([^`]+)`")
MARKUP = re.compile(r"([\\*|]|(?<=\w)_(?!\w))")
EQUATION = re.compile(r"[←=≤~∘]")

ARRAY_TYPES = {  # what Sphinx writes for a type, with the name of the type
    stringify_annotation(value, "smart"): name
    for name, value in (*vars(types).items(), ("ArrayLike", npt.ArrayLike))
    if name[0].isupper()
}


def shorten_types(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Write short names of array types into one signature, as autodoc asks for it."""
    texts = [(signature or "").replace("<factory>", "..."), returned or ""]
    for long, short in ARRAY_TYPES.items():
        texts = [text.replace(long, short) for text in texts]
    return texts[0] or None, texts[1] or None


def convert_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Replace the lines of one docstring, as autodoc asks for it."""
    converted: list[str] = []
    for paragraph in _split_paragraphs(lines):
        converted += _convert_paragraph(paragraph)
        converted.append("")
    lines[:] = converted


def _split_paragraphs(lines: list[str]) -> list[list[str]]:
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def _convert_paragraph(lines: list[str]) -> list[str]:
    if lines[0].lstrip().startswith(">>>"):
        return lines
    if lines[0].startswith("|") and lines[0].endswith("|"):
        return [".. code-block:: text", "", *("   " + line for line in lines)]
    escaped = [_escape(line) for line in lines]
    if _is_equation(lines):
        return ["| " + line.strip() for line in escaped]
    if lines[0].lstrip().startswith(("- ", "* ")):
        return [line.replace("\\*", "*", 1) if line.startswith("\\*") else line for line in escaped]
    return [line.strip() for line in escaped]


def _is_equation(lines: list[str]) -> bool:
    """Whether the lines are formulas: they have a relation, and few words of prose."""
    text = " ".join(lines)
    words = re.findall(r"\b[a-z]{3,}\b", text)
    return bool(EQUATION.search(text)) and len(words) <= 2 * len(lines) + 2


def _escape(line: str) -> str:
    parts = CODE.split(line)  # text, code, text, code, …
    return "".join(
        f"``{part}``" if index % 2 else MARKUP.sub(r"\\\1", part)
        for index, part in enumerate(parts)
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the conversions."""
    app.connect("autodoc-process-docstring", convert_docstring)
    app.connect("autodoc-process-signature", shorten_types)
    return {"parallel_read_safe": True}
