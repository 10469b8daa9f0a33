"""The pages build without a warning, and every public thing is in them."""

import ast
import html
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import snowballstemmer
from typer.main import get_command

import windvane as wv
from processes import run_python
from windvane import client, evaluation, lab
from windvane.cli import app
from windvane.exploration import EXPLORATIONS
from windvane.memory import MEMORIES
from windvane.service.api.routes import ENDPOINTS
from windvane.service.loops.settings import SETTINGS
from windvane.service.monitoring.metrics import list_metrics

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    options = ("-W", "--keep-going", "-q", "-b", "html", "-d", folder / "doctrees")
    run_python("-m", "sphinx", *options, ROOT / "docs", folder / "html")
    return folder / "html"


def text_of(site: Path, page: str) -> str:
    """The text of a built page, without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", (site / page).read_text("utf-8")))


def list_public_names() -> dict[str, object]:
    """The names of the library and of its small namespaces, with what they name."""
    names = {name: getattr(wv, name) for name in wv.__all__}
    for module in (wv.errors, wv.laws, wv.sets):
        for name in getattr(module, "__all__", [each for each in vars(module) if each[0] != "_"]):
            if name not in names:
                names[f"{module.__name__.removeprefix('windvane.')}.{name}"] = getattr(module, name)
    return {name: value for name, value in names.items() if not isinstance(value, ModuleType)}


def test_every_public_name_is_documented(site: Path) -> None:
    pages = [page.read_text("utf-8") for page in (site / "reference").glob("*.html")]
    for name in list_public_names():
        assert any(f'id="windvane.{name}"' in page for page in pages), name


def test_every_public_name_has_an_example() -> None:
    for name, value in list_public_names().items():
        assert ">>> " in (value.__doc__ or ""), name


@pytest.mark.parametrize("module", [lab, lab.worlds, evaluation, client], ids=lambda m: m.__name__)
def test_every_public_name_of_a_part_is_documented(site: Path, module: ModuleType) -> None:
    name = module.__name__
    page = (site / f"reference/{name.split('.')[1]}.html").read_text("utf-8")
    for each in {*module.__all__} - {"worlds"}:
        assert f'id="{name}.{each}"' in page, each


SEARCHES = {  # what people type into the search box, with the page that answers it
    "gunicorn": "how-to/embed",
    "pandas": "how-to/embed",
    "llm": "how-to/embed",
    "delayed feedback": "how-to/late-rewards",
}


def test_search_finds_what_people_ask_for(site: Path) -> None:
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    for words, page in SEARCHES.items():
        place = index["docnames"].index(page)
        for word in words.split():
            stem = snowballstemmer.stemmer("english").stemWord(word)
            found = [index[part].get(stem, []) for part in ("terms", "titleterms")]
            pages = {
                each for many in found for each in (many if isinstance(many, list) else [many])
            }
            assert place in pages, (words, page)


def test_signatures_have_types_and_return_values(site: Path) -> None:
    library, client = (text_of(site, f"reference/{page}.html") for page in ("library", "client"))
    assert re.search(r"rewards:\s+Floats|arms:\s+ArrayLike", library)
    assert re.search(r"\)\s+→\s+RankedDecision", client)
    for page in (site / "reference").glob("*.html"):
        assert "numpy._typing" not in page.read_text("utf-8"), page.name


def test_every_command_and_option_is_documented(site: Path) -> None:
    page = text_of(site, "reference/cli.html")

    def check(path: str, command: object) -> None:
        subcommands = getattr(command, "commands", None)
        if subcommands is not None:
            for name, subcommand in subcommands.items():
                check(f"{path} {name}", subcommand)
            return
        assert path in page
        for parameter in command.params:  # type: ignore[attr-defined]
            if parameter.name != "help":
                assert parameter.help, f"{path}: {parameter.name}"

    check("windvane", get_command(app))


SERVE = get_command(app).commands["serve"].params  # type: ignore[attr-defined]
DOCUMENTED: dict[str, list[str]] = {
    "reference/memories": [kind.symbols for kind in MEMORIES.values()],
    "reference/explorations": [kind.symbols for kind in EXPLORATIONS.values()],
    "reference/http": [endpoint.path.replace(":path", "") for endpoint in ENDPOINTS],
    "service/deploy": [
        text for each in SERVE if each.name != "help" for text in (each.envvar, each.opts[0])
    ],
    "service/settings": [
        text for each in SETTINGS for text in (each.name, each.flag, each.meaning)
    ],
    "service/metrics": [metric.name for metric in list_metrics()],
}


@pytest.mark.parametrize("page", DOCUMENTED)
def test_every_entry_of_a_table_is_on_its_page(site: Path, page: str) -> None:
    text = text_of(site, f"{page}.html")
    assert [each for each in DOCUMENTED[page] if each not in text] == []
    assert DOCUMENTED[page]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200


def test_every_picture_has_an_alternative_text() -> None:
    for page in (ROOT / "README.md", *PAGES):
        for text in re.findall(r"!\[(.*?)\]\(", page.read_text("utf-8"), re.DOTALL):
            assert len(text) > 30, page


def test_links_of_the_readme_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_that_is_not_run_is_python(page: Path) -> None:
    for block in PYTHON.findall(page.read_text("utf-8")):
        if not block.startswith(">>>"):
            ast.parse(block)
