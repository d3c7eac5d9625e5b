"""``python -m tests.fuzz``: fuzzes every decoder for a while, and says what it found. Exits 1 when it found something.

What is new in the corpus is kept with ``--keep``, merged by libFuzzer to the fewest inputs that reach as much.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from tests.fuzz import corpus
from tests.fuzz.targets import BY_NAME, Target

# A unit that takes so long on a busy machine does work without a bound.
UNIT_TIMEOUT_S: Final = 60
MEMORY_MB: Final = 1024
MOST_BYTES: Final = 4096
FOUND: Final = Path("build/fuzz")


@click.command()
@click.option("--seconds", default=60, show_default=True, help="for each target")
@click.option(
    "--target", "names", multiple=True, type=click.Choice(list(BY_NAME)), help="this one; repeatable"
)
@click.option("--keep", is_flag=True, help="merge what was reached into tests/fuzz/corpus")
@click.option("--seed", default=0, help="libFuzzer's, as an earlier run told it; 0: another each time")
def main(seconds: int, names: tuple[str, ...], keep: bool, seed: int) -> None:
    """Fuzzes the decoders one after the other."""
    FOUND.mkdir(parents=True, exist_ok=True)
    console, table = Console(), Table("target", "inputs tried", "corpus", "found")
    seed = seed or new_seed()
    console.print(f"seed {seed}", highlight=False)
    failed = False
    for name in names or BY_NAME:
        with tempfile.TemporaryDirectory(prefix="landline-fuzz-") as directory:
            inputs = Path(directory) / "inputs"
            corpus.unpack([*BY_NAME[name].seeds(), *corpus.load(name)], inputs)
            console.print(f"[bold cyan]==>[/] {name}, {seconds} s")
            code, text = fuzz(BY_NAME[name], inputs, seconds, seed)
            if code == 0 and keep:
                corpus.save(name, merged(BY_NAME[name], inputs, Path(directory) / "fewest"))
            tried = re.search(r"number_of_executed_units: (\d+)", text)
            written = re.search(r"Test unit written to (\S+)", text)
            found = (
                "[green]nothing[/]" if code == 0 else f"[red]{written[1] if written else f'exit {code}'}[/]"
            )
            table.add_row(name, tried[1] if tried else "-", str(len(list(inputs.iterdir()))), found)
        if code:
            failed = True
            console.print(text[-6000:], markup=False, highlight=False)
    console.print(table)
    if failed:
        console.print(
            f"[bold red]Found[/], with --seed {seed}. Once more: python -m tests.fuzz.engine TARGET FILE; mend it, "
            "then --keep the file."
        )
        sys.exit(1)
    console.print("[bold green]Nothing found.[/] A longer look: make fuzz SECONDS=3600")


def new_seed() -> int:
    """One that libFuzzer takes, which is not 0."""
    return random.randrange(1, 1 << 32)


def fuzz(target: Target, inputs: Path, seconds: int, seed: int = 0) -> tuple[int, str]:
    """The engine's exit code and what it printed, after ``seconds`` from the inputs in a directory, which grows."""
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={UNIT_TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={FOUND}/{target.name}-",
        f"-seed={seed}",
        "-print_final_stats=1",
    ]
    return _engine(target.name, *options, str(inputs))


def merged(target: Target, inputs: Path, fewest: Path) -> list[bytes]:
    """As few inputs as reach what all of them reach."""
    fewest.mkdir()
    code, text = _engine(target.name, "-merge=1", f"-max_len={MOST_BYTES}", str(fewest), str(inputs))
    if code:
        raise click.ClickException(text[-3000:])
    return list(corpus.pack(fewest))


def _engine(name: str, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.engine", name, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


if __name__ == "__main__":
    main()
