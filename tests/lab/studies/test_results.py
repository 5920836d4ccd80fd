"""Numbers over seeds, as they are written for people."""

import pytest

from fairhit_lab.studies.shared.results import interval_of


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([2.0, 3.0, 1.0], "2 (1 to 3)"),
        ([760.1, 760.2, 759.9], "760"),  # a range below three digits is not shown
        ([999.4, 1000.0, 1001.0], "1,000 (999 to 1,000)"),
        ([12345.0], "12,300"),
        ([], "no value"),
    ],
)
def test_a_range_is_written_where_it_can_be_seen(values, shown):
    assert str(interval_of(values)) == shown
