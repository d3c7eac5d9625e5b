"""Runs Debian's Chromium headless: opens a page at given widths and reports its layout and
console messages.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

TIMEOUT_S = 100
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
# The page is measured in a frame of the requested width, because a window is never narrower than some 500 px.
_AROUND = """<!doctype html><meta charset="utf-8"><title>around</title><body><script>
const page = %(page)s, widths = %(widths)s, seen = [];
function look(frame, width) {
  const inside = frame.contentDocument, root = inside.documentElement;
  const wide = [...inside.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1);
  return {
    width, scroll_width: root.scrollWidth, height: root.scrollHeight,
    headings: [...inside.querySelectorAll("h1,h2,h3,h4")].map(e => e.textContent.trim()),
    first_image_top: inside.images.length ? inside.images[0].getBoundingClientRect().top : null,
    broken_images: [...inside.images].filter(e => !e.complete || !e.naturalWidth).map(e => e.alt),
    too_wide: wide.filter(e => !e.closest(".skip, thead, svg")).map(e => e.tagName + " " + e.textContent.slice(0, 40)),
    smallest_text_px: Math.min(...[...inside.querySelectorAll("p,li,td,dd,figcaption")]
      .map(e => parseFloat(inside.defaultView.getComputedStyle(e).fontSize))),
    background: inside.defaultView.getComputedStyle(inside.body).backgroundColor,
  };
}
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.onload = () => {
    frame.contentDocument.querySelectorAll("details").forEach(e => { e.open = true; });
    seen.push(look(frame, width));
    if (seen.length === widths.length) {
      const told = document.createElement("pre");
      told.id = "seen";
      told.textContent = JSON.stringify(seen);
      document.body.replaceChildren(told);
    }
  };
  frame.srcdoc = page;
  document.body.append(frame);
}
</script>"""


@dataclass(frozen=True)
class Looked:
    """What the browser found at each width, and each line of its console."""

    at: dict[int, dict[str, Any]]
    console: list[str]


def look_at(page: Path, widths: tuple[int, ...], directory: Path, dark: bool = False) -> Looked:
    """Opens the page with all its folded parts open, at each width in CSS pixels. Raises AssertionError."""
    around = directory / "around.html"
    text = json.dumps(page.read_text(encoding="utf-8")).replace("</", "<\\/").replace("<!--", "<\\!--")
    around.write_text(_AROUND % {"page": text, "widths": list(widths)}, encoding="utf-8")
    done = _run(["--dump-dom", "--virtual-time-budget=20000", around.as_uri()], directory, dark)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page was not measured:\n{done.stderr}"
    seen = {each["width"]: each for each in json.loads(unescape(found[1]))}
    return Looked(seen, _console(done.stderr))


def dom_of(url: str, directory: Path) -> tuple[str, list[str]]:
    """A served page as the browser has read it, and the lines of its console, for example refusals by its policy."""
    done = _run(["--dump-dom", url], directory, False)
    return done.stdout, _console(done.stderr)


def _console(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if ":CONSOLE" in line]


def screenshot(page: Path, target: Path, width: int, height: int, dark: bool = False) -> None:
    """Takes a picture of the page's first ``height`` pixels."""
    _run([f"--screenshot={target}", f"--window-size={width},{height}", page.as_uri()], target.parent, dark)
    assert target.exists()


def _run(arguments: list[str], directory: Path, dark: bool) -> subprocess.CompletedProcess[str]:
    program = shutil.which("chromium")
    assert program, "chromium is not installed: apt-get install chromium"
    profile = directory / "profile"
    # 0 is dark; without it Chromium follows the desktop's setting, and there is no desktop.
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [
        program,
        *_ARGUMENTS,
        "--enable-logging=stderr",
        f"--user-data-dir={profile}",
        scheme,
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done
