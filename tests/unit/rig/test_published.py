"""Where the data behind a page lies."""

from pathlib import Path

import pytest

from rig.published import data_directory

PAGES, DATA = Path("/product/docs"), Path("/product/tool/results")


@pytest.mark.parametrize(
    ("pages_in", "data_in"),
    [
        ("/product/docs", "/product/tool/results"),
        ("/product/docs/old", "/product/tool/results/old"),
        ("/product/tool/../docs", "/product/tool/results"),
        ("/product/docs-drafts", "/product/docs-drafts"),
        ("build/report", "build/report"),
    ],
)
def test_only_data_of_a_published_page_lies_elsewhere_than_the_page(pages_in, data_in):
    assert data_directory(Path(pages_in), PAGES, DATA) == Path(data_in)
