"""What stands in a CSV file."""

import csv


def rows_of(path):
    """Its rows, as cells by the name of their column."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
