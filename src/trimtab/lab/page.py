"""The page: one HTML file with its data, its script and the plotting library inside.

plotly.js (MIT licence, beside it) is inlined, so that the page opens without a network.
"""

import json
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.log.writer import to_json


def write(content: Mapping[str, Any], path: Path) -> None:
    """Write the page of a survey, which may be unfinished."""
    aside = path.with_suffix(".html.partial")
    aside.write_text(rendered(content), encoding="utf-8")
    os.replace(aside, path)


def rendered(content: Mapping[str, Any]) -> str:
    """The page's text."""
    data = json.dumps(to_json(compact(content)), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "/*STYLE*/": asset("page.css"),
        "/*PLOTLY*/": asset("plotly-basic.min.js").replace("</script", "<\\/script"),
        "/*DATA*/": data.replace("</", "<\\/"),
        "/*SCRIPT*/": asset("page.js"),
    }
    page = asset("page.html")
    for mark, text in parts.items():
        before, found, after = page.partition(mark)
        assert found, mark
        page = before + text + after
    return page


def asset(name: str) -> str:
    return (resources.files("trimtab.lab") / "assets" / name).read_text(encoding="utf-8")


def compact(value: Any) -> Any:
    """Numbers to four digits: as many as the page shows, in a third of the space."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: compact(item) for key, item in value.items()}
    return [compact(item) for item in value]
