"""Pages of the dashboard in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"


@contextmanager
def start_browser() -> "Iterator[Browser]":
    """Chromium, or a skipped test if it is not installed."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="pip install playwright to test the dashboard in a browser"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip("apt-get install chromium to test the dashboard in a browser")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield chromium
        chromium.close()


def open_page(
    browser: "Browser",
    problems: list[str],
    scheme: str,
    wide: int = 1200,
    password: str | None = None,
) -> "Page":
    """A new page, whose errors and dialogs are collected."""
    page = browser.new_page(
        http_credentials=None if password is None else {"username": "", "password": password},
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": wide, "height": 900},
    )
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    return page
