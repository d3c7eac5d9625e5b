"""Publishes a comparison: its data, the page and the summary, and the answer in the README.

All inputs of the page are kept, so that anybody can recreate it byte for byte. Existing storms are kept if
the data have none, because they are measured separately.
"""

from __future__ import annotations

import lzma
import re
import shutil
import tempfile
from pathlib import Path

from compare.recorded import COMPARISON_FILE, EVENTS_FILE, MANIFEST_FILE, PACKED, STORMS_FILE
from compare.report.answer import in_short
from compare.report.inputs import Inputs, read_inputs
from compare.report.page import PAGE_FILE, SUMMARY_FILE, write_report
from compare.report.wording import counted
from compare.simulation.study import study

BEGIN, END = "<!-- the answer of docs/comparison: begin -->", "<!-- the answer of docs/comparison: end -->"


def publish(source: Path, data: Path, target: Path, readme: Path | None = None) -> None:
    """Publishes into ``data`` (the recorded data) and ``target`` (page, pictures and README.md), created
    if missing.

    The answer goes between the marks of ``readme``. Raises Unreadable, OSError, and ValueError for a readme
    without marks.
    """
    for directory in (data, target):
        directory.mkdir(parents=True, exist_ok=True)
    for name in (COMPARISON_FILE, MANIFEST_FILE, STORMS_FILE):
        if (source / name).exists():
            shutil.copyfile(source / name, data / name)
    events = (source / EVENTS_FILE).read_bytes()
    (data / (EVENTS_FILE + PACKED)).write_bytes(lzma.compress(events, preset=9 | lzma.PRESET_EXTREME))
    inputs = read_inputs(data)
    with tempfile.TemporaryDirectory(prefix="landline-report-") as temporary:
        made = Path(temporary)
        write_report(inputs, study(inputs.runs, storms=inputs.storms), made)
        summary = (made / SUMMARY_FILE).read_text(encoding="utf-8")
        for picture in target.glob("*.png"):
            picture.unlink()
        for name in {PAGE_FILE, *pictures_of(summary)}:
            shutil.copyfile(made / name, target / name)
        (target / "README.md").write_text(summary, encoding="utf-8")
    if readme is not None:
        readme.write_text(with_answer(readme.read_text(encoding="utf-8"), inputs), encoding="utf-8")


def pictures_of(summary: str) -> list[str]:
    """The pictures that a summary shows."""
    return re.findall(r"\]\(([\w-]+\.png)\)", summary)


def with_answer(text: str, inputs: Inputs) -> str:
    """A readme with the comparison's answer between its marks. Raises ValueError."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"the readme must have {BEGIN!r} and {END!r} once")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{answer_of(inputs)}\n{END}{rest.partition(END)[2]}"


def answer_of(inputs: Inputs) -> str:
    """The answer as a list, with its circumstances."""
    points = "\n".join(f"- **{point.title}** {point.text}" for point in in_short(inputs.comparison))
    hosts = max((group.hosts for group in inputs.comparison.groups), default=0)
    rounds = max((group.rounds for group in inputs.comparison.groups), default=0)
    made = f"Of {inputs.comparison.runs} starts on at most {counted(hosts, 'host')}"
    return f"{made}, {counted(rounds, 'round')} of each:\n\n{points}"
