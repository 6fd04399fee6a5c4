from spoken_tables import language, rewarded  # noqa: F401  fixtures
from table_sets import table_set  # noqa: F401  a fixture
