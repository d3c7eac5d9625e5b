"""Writes docs/roles.md: every variable of every role, from the roles' argument_specs and defaults.

python tools/role_docs.py [--check]     --check only reports whether the file is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "roles.md"
HEAD = """# Variables of the roles

Written by `make docs` from `roles/*/meta/argument_specs.yml` and `roles/*/defaults/main.yml`; the comments in
the latter say more. Set them in the inventory: `inventory/sample` shows where.
"""


def default_of(name: str, defaults: dict[str, Any]) -> str:
    """Returns the default as a table cell."""
    if name not in defaults:
        return ""
    value = defaults[name]
    shown = (
        value.strip()
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True, width=1000)
    )
    shown = " ".join(shown.replace("\n...", "").split()).replace("|", "\\|")
    return f"`{shown}`" if shown else "empty"


def section(role: Path) -> str:
    """Returns the section of one role."""
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]
    path = role / "defaults" / "main.yml"
    defaults = yaml.safe_load(path.read_text()) if path.exists() else {}
    undocumented = sorted(set(defaults or {}) - set(spec.get("options", {})))
    if undocumented:
        raise SystemExit(f"role_docs: {role.name}: not in argument_specs: {', '.join(undocumented)}")
    rows = [
        f"| `{name}` | {option['type']} | {default_of(name, defaults)} | {sentence(option['description'])} |"
        for name, option in spec.get("options", {}).items()
    ]
    table = ["| variable | type | default | what it is |", "|---|---|---|---|", *rows]
    return f"## {role.name}\n\n{spec['short_description']}.\n\n" + "\n".join(table) + "\n"


def sentence(description: str | list[str]) -> str:
    """Returns a description, which may be a list of paragraphs, as a table cell."""
    parts = [description] if isinstance(description, str) else description
    return " ".join(" ".join(parts).split()).replace("|", "\\|")


def page() -> str:
    roles = sorted(
        path for path in (ROOT / "roles").iterdir() if (path / "meta" / "argument_specs.yml").exists()
    )
    return "\n".join([HEAD, *map(section, roles)])


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != text:
            raise SystemExit("role_docs: docs/roles.md is out of date: run `make docs`")
        return
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    click.echo(f"wrote {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
