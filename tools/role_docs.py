"""Writes docs/roles.md: every variable of every role, from the roles' argument_specs and defaults. And their READMEs.

python tools/role_docs.py [--check]     --check only reports whether the files are up to date
"""

from __future__ import annotations

import sys
import textwrap
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
README = """# landline.cluster.{name}

{text}

`landline.cluster.deploy` applies it to its group of hosts. Its tasks can also be used in a play of your own:

```yaml
- name: Bring the host to its desired state
  ansible.builtin.import_role:
    name: landline.cluster.{name}
```

## Variables

{table}
Written by `make docs` of Landline from `meta/argument_specs.yml` and `defaults/main.yml`.
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


def spec_of(role: Path) -> dict[str, Any]:
    """Returns the specification of a role's entry point."""
    spec: dict[str, Any] = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())[
        "argument_specs"
    ]["main"]
    return spec


def section(role: Path) -> str:
    """Returns the section of one role."""
    return f"## {role.name}\n\n{spec_of(role)['short_description']}.\n\n{table(role)}"


def readme(role: Path) -> str:
    """Returns the README.md of one role."""
    spec = spec_of(role)
    said = spec.get("description", [])
    paragraphs = [f"{spec['short_description']}.", *([said] if isinstance(said, str) else said)]
    return README.format(name=role.name, text="\n\n".join(map(wrapped, paragraphs)), table=table(role))


def wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 110, break_long_words=False, break_on_hyphens=False)


def table(role: Path) -> str:
    """Returns the table of a role's variables; `SystemExit` if one is not documented."""
    spec = spec_of(role)
    path = role / "defaults" / "main.yml"
    defaults = yaml.safe_load(path.read_text()) if path.exists() else {}
    undocumented = sorted(set(defaults or {}) - set(spec.get("options", {})))
    if undocumented:
        raise SystemExit(f"role_docs: {role.name}: not in argument_specs: {', '.join(undocumented)}")
    rows = [
        f"| `{name}` | {option['type']} | {default_of(name, defaults)} | {sentence(option['description'])} |"
        for name, option in spec.get("options", {}).items()
    ]
    return "\n".join(["| variable | type | default | what it is |", "|---|---|---|---|", *rows]) + "\n"


def sentence(description: str | list[str]) -> str:
    """Returns a description, which may be a list of paragraphs, as a table cell."""
    parts = [description] if isinstance(description, str) else description
    return " ".join(" ".join(parts).split()).replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Returns the text of each file."""
    roles = sorted(path.parents[1] for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
    return {
        TARGET: "\n".join([HEAD, *map(section, roles)]),
        **{role / "README.md": readme(role) for role in roles},
    }


def main() -> None:
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if stale and "--check" in sys.argv[1:]:
        raise SystemExit(f"role_docs: out of date: {names}: run `make docs`")
    for path, text in stale.items():
        path.write_text(text)
    click.echo(f"wrote {names}" if stale else "role_docs: up to date")


if __name__ == "__main__":
    main()
