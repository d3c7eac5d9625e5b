"""The style sheet of the status page, and the Content-Security-Policy that allows it and nothing else."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #f6f7f9; --panel: #ffffff; --ink: #1a1f26; --faint: #5a6472; --line: #dde2e8; --track: #e6eaef;
  --good: #12703f; --good-tint: #e3f4ea; --warn: #8a5200; --warn-tint: #fdf0d8; --bad: #b3261e; --bad-tint: #fde7e5;
  --accent: #2459b3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12151a; --panel: #1a1f26; --ink: #e6eaf0; --faint: #9aa6b5; --line: #2d3540; --track: #2d3540;
    --good: #6fd39b; --good-tint: #15301f; --warn: #f0b75a; --warn-tint: #35280f; --bad: #ff8f85; --bad-tint: #3d1b19;
    --accent: #8ab4ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif;
}
header, main, footer { max-width: 72rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 1.75rem; display: flex; flex-wrap: wrap; gap: .35rem 1rem; align-items: baseline; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.05rem; margin: 0 0 .6rem; display: flex; flex-wrap: wrap; gap: .2rem .6rem; align-items: baseline; }
h2 small, .about { font-size: .85rem; font-weight: 400; color: var(--faint); }
p { margin: .4rem 0; }
a { color: var(--accent); text-underline-offset: .2em; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 2px; }
.pill {
  display: inline-block; padding: 0 .55em; border-radius: 1em;
  font-size: .85rem; font-weight: 600; white-space: nowrap;
}
.good { color: var(--good); background: var(--good-tint); }
.warn { color: var(--warn); background: var(--warn-tint); }
.bad { color: var(--bad); background: var(--bad-tint); }
.verdict { margin: 1.1rem 0; padding: .8rem 1.1rem; border-radius: .6rem; border-left: .35rem solid currentColor; }
.verdict p { color: var(--ink); }
.verdict .say { color: inherit; font-weight: 650; font-size: 1.05rem; margin: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 0 0 1rem; }
.tiles div { background: var(--panel); border: 1px solid var(--line); border-radius: .6rem; padding: .65rem .9rem; }
.tiles dt { color: var(--faint); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles .alarm dd { color: var(--bad); }
.tiles .care dd { color: var(--warn); }
section {
  background: var(--panel); border: 1px solid var(--line); border-radius: .6rem; padding: .9rem 1.1rem;
  margin: 0 0 1rem;
}
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-size: .8rem; font-weight: 600; color: var(--faint); }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: baseline; }
tr:last-child td { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; white-space: nowrap; }
.none { color: var(--faint); margin: 0; }
meter::-webkit-meter-bar { background: var(--track); border: 0; border-radius: 1rem; height: .6rem; }
meter::-webkit-meter-optimum-value { background: var(--good); }
meter::-webkit-meter-suboptimum-value { background: var(--warn); }
meter::-webkit-meter-even-less-good-value { background: var(--bad); }
meter, progress { width: 8rem; max-width: 100%; height: .7rem; vertical-align: baseline; }
footer { color: var(--faint); font-size: .85rem; padding-bottom: 2rem; }
footer p { margin: .2rem 0; }
@media (max-width: 42rem) {
  header, main, footer { padding-left: .75rem; padding-right: .75rem; }
  header { padding-top: 1rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); gap: .5rem; }
  section { padding: .75rem .85rem; }
  table, tbody, tr, td { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tr { padding: .45rem 0; border-bottom: 1px solid var(--line); }
  tr:last-child { border-bottom: 0; padding-bottom: 0; }
  td, td.n {
    display: flex; gap: .2rem 1rem; justify-content: space-between; text-align: right; white-space: normal;
    border: 0; padding: .08rem 0;
  }
  td::before { content: attr(data-label); color: var(--faint); text-align: left; flex: none; }
  td:empty { display: none; }
  td:first-child { font-weight: 650; }
}
@media (prefers-reduced-motion: no-preference) { :root { scroll-behavior: smooth; } }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
#: The page has no script, no image but an empty icon, and no form; nobody may frame it.
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
