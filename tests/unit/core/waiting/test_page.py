"""The worked example of docs/explanation/waiting-index.md has the values that the index computes."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs/explanation/waiting-index.md"


def test_every_value_on_the_page_is_the_index_s_own():
    example = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    page = doctest.DocTestParser().get_doctest(example, {}, PAGE.name, PAGE.name, 0)
    wrong: list[str] = []

    result = doctest.DocTestRunner(verbose=False).run(page, out=wrong.append)

    assert result.attempted > 20
    assert result.failed == 0, "".join(wrong)
