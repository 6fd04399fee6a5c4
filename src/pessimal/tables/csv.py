"""CSV files as text: what is in a cell is data, whatever it spells."""

from pathlib import Path

import pandas as pd

from pessimal.errors import InputError


def read_csv(path: Path) -> pd.DataFrame:
    """Every cell as the text it is; pandas would take `null` and `NA` for missing values.

    Raises:
        InputError: the file is empty, not UTF-8, or no table.
    """
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False, na_filter=False)
    except (OSError, UnicodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}") from error
