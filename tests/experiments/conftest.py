from table_sets import table_set  # noqa: F401  a fixture
