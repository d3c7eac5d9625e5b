"""The table of docs/operations.md is what the recorded run says."""

from tools.move_figures import PAGE, read, table, with_table


def test_the_figures_of_moves_in_the_documentation_are_those_that_were_recorded():
    page = PAGE.read_text()
    assert with_table(page, table(*read())) == page, "run `.venv/bin/python -m tools.move_figures`"
