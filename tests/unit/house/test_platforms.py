"""README claims the platforms that a kept run has seen, and no others."""

import pytest

from lab.image import SUITES
from tools.platforms import README, results, table, with_table
from tools.wheelhouse import PYTHONS


def test_the_readmes_table_has_what_the_runs_saw():
    readme = README.read_text()
    assert with_table(readme, table(results())) == readme, "python -m tools.platforms table"


def test_each_suite_of_the_lab_has_a_run():
    assert {name.split()[0] for name in results()} == set(SUITES)


def test_a_run_was_on_a_python_that_archives_are_made_for():
    for seen in results().values():
        assert f"cp{''.join(str(seen['python']).split('.')[:2])}" in PYTHONS


def test_a_readme_without_the_tables_place_is_refused():
    with pytest.raises(SystemExit, match=r"README\.md has no lines"):
        with_table("no table", "| a |")
